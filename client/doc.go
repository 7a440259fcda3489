// Package client makes it safe to repeat POST and PATCH requests from the
// caller's side. Its [Transport] gives each operation one idempotency key, sends
// the key with every attempt, and repeats what can be repeated.
//
//	c := &http.Client{Transport: &client.Transport{}}
//
// # One key for each operation
//
// One call of [http.Client.Do] is one operation and gets one key: the value of
// the Idempotency-Key header if the caller set one, else the key of [WithKey],
// else a new random UUID. All attempts carry it. A server that guards the
// endpoint, such as one with the middleware of this module, runs the operation
// once and gives every attempt the same answer.
//
// A loop round Do is a different matter: each turn is a new operation with a new
// key, unless the caller names the key. Where the operation has an identity of
// its own, say an order that is to be paid, name the key after it, and it stays
// one operation over restarts of the process:
//
//	ctx = client.WithKey(ctx, "pay-"+order.ID)
//
// # What is repeated
//
//	what happened                                     | repeated
//	--------------------------------------------------|---------
//	no connection, connection cut, attempt timed out  | yes
//	a small answer cut in the middle (MaxAnswerBytes) | yes
//	408, 425, 429, 500, 502, 503, 504                 | yes
//	409 with the problem request_in_progress          | yes, until the operation has ended
//	409 with outcome_unknown and Retry-After          | yes, if the problem does not say retryable: false
//	any other 409, any other 4xx, 1xx to 3xx, 501     | no
//	Idempotent-Replayed: true                         | no: it would only be said again
//	Idempotency-Unguarded: true                       | no: the handler would run again
//	a problem that says retryable: false              | no
//	the caller's context has ended                    | no
//	the server's certificate is not trusted           | no
//	a request that cannot be sent (scheme, header)    | no
//	methods other than POST and PATCH (Methods)       | never touched
//	a long body without GetBody (MaxBodyBytes)        | sent once, with its key
//	a redirect to another origin                      | sent once, without the key
//
// Between attempts it waits for a random time below a ceiling that doubles, or
// as long as Retry-After asks, up to a cap. It never waits past the context's
// deadline, MaxElapsed or KeyLifetime: it returns what it has at once. When the
// attempts or the Transport's retry budget are used up, the last answer is
// returned with its body readable.
//
// net/http itself sends a request that carries an idempotency key a second time
// when it finds that a kept-alive connection was dead. Such a twin has the same
// key and body, and is not counted as an attempt.
//
// # Unknown outcomes
//
// When no attempt brought an answer and some request was sent, nobody on this
// side knows whether the operation was carried out. The error is then an
// [*UnknownOutcomeError] and carries the key. Do not make a new operation of it:
// send the same request again under the same key, now or later, but before the
// server forgets the key.
//
//	var unknown *client.UnknownOutcomeError
//	if errors.As(err, &unknown) {
//		req, err = http.NewRequestWithContext(unknown.Resume(ctx), http.MethodPost, url, body)
//		// … and Do again, or store unknown.Key and use WithKey later.
//	}
//
// An answer that breaks off while the caller reads its body is resumed in the
// same way, with the key that [Info] tells.
//
// # What it asks of the body
//
// Every attempt sends the same bytes with the same length: never build a body
// anew for a retry, since a server compares them. A body with GetBody, as
// [http.NewRequest] sets it for bytes and strings, is opened anew for each
// attempt, the first included. Any other is read into memory before anything is
// sent, up to MaxBodyBytes; a body that is written while the answer is being
// read therefore needs a negative MaxBodyBytes, and is sent once.
//
// # Redirects
//
// http.Client follows redirects by calling RoundTrip again. On 307 and 308 to
// the same scheme, host and port the key is kept. It never goes to another
// origin, even if the caller had set the header and http.Client copies it.
package client
