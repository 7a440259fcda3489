package idempotency

import "net/http"

// Ending is how a run ended.
type Ending struct {
	Status   int   // that the handler answered; 500 if it panicked
	Panicked bool  // the handler panicked or called runtime.Goexit
	Cause    error // why the handler's context had ended before it returned: ErrClaimLost, ErrMaxExecution, or nil
}

// Policy decides what becomes of a key when its run has ended: true records the
// answer, false frees the key. [Execution.Keep] and [Execution.Discard] override
// it, and an answer that is shorter than it announced is never recorded.
type Policy func(Ending) bool

// RecordFinal is the default Policy. It records every answer but those that say
// "not carried out, send it again" (401, 408, 421, 425, 429, 503), and but for
// panics and for 5xx after the handler's context was ended by the middleware.
// Other 5xx are recorded: they prove nothing about what was done, and a second
// run is the expensive mistake.
func RecordFinal(e Ending) bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusMisdirectedRequest,
		http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false
	}
	return !e.Panicked && (e.Cause == nil || e.Status < 500)
}

// RecordAll is the Policy that records every answer. A panic is recorded as the
// problem handler_panicked with status 500; with a [TxStore] it rolls back all the
// same.
func RecordAll(Ending) bool { return true }

// RecordNon5xx is RecordFinal without any 5xx. It is the default with a
// [TxStore], where an answer that is not recorded has left nothing behind.
func RecordNon5xx(e Ending) bool { return e.Status < 500 && RecordFinal(e) }
