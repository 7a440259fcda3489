package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/client"
	"github.com/retrysafe/idempotency/memstore"
)

// A server whose first answer gets lost on the way.
func unreliable() *httptest.Server {
	charges, requests := 0, 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charges)
	})
	guarded := idempotency.New(memstore.New(), idempotency.SharedKeys).Handler(charge)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 1 {
			guarded.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
}

func Example() {
	srv := unreliable()
	defer srv.Close()

	c := &http.Client{Transport: &client.Transport{}}
	resp, err := c.Post(srv.URL, "application/json", strings.NewReader(`{"amount":4200}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	info := client.Info(resp)
	fmt.Printf("%s after %d attempts, replayed: %t\n", body, info.Attempts, info.Replayed)
	// Output: charge 1 after 2 attempts, replayed: true
}

// An order is paid once, however often this runs.
func ExampleWithKey() {
	srv := unreliable()
	defer srv.Close()
	c := &http.Client{Transport: &client.Transport{}}

	for range 2 {
		ctx := client.WithKey(context.Background(), "pay-order-1042")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(`{"amount":4200}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := c.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s\n", body)
	}
	// Output:
	// charge 1
	// charge 1
}

// Without an answer nobody knows whether the card was charged. The same request
// under the same key finds out.
func ExampleUnknownOutcomeError() {
	srv := unreliable()
	defer srv.Close()
	lost := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusBadGateway {
			resp.Body.Close()
			return nil, errors.New("connection reset")
		}
		return resp, err
	})
	c := &http.Client{Transport: &client.Transport{Base: lost, MaxAttempts: 1}}

	ctx := context.Background()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(`{"amount":4200}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := c.Do(req)
		var unknown *client.UnknownOutcomeError
		if errors.As(err, &unknown) {
			fmt.Println(unknown)
			ctx = unknown.Resume(ctx) // or keep unknown.Key and come back later
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s\n", body)
		return
	}
	// Output:
	// client: outcome unknown after 1 attempt: connection reset
	// charge 1
}

// A handler calls another service under a key of its own operation.
func ExampleWithDerivedKey() {
	bank := unreliable()
	defer bank.Close()
	c := &http.Client{Transport: &client.Transport{}}

	shop := idempotency.New(memstore.New(), idempotency.SharedKeys).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := client.WithDerivedKey(r.Context(), "charge")
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank.URL, strings.NewReader(`{"amount":4200}`))
			if err != nil {
				panic(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				panic(err)
			}
			defer resp.Body.Close()
			fmt.Println(client.Info(resp).Key)
			_, _ = io.Copy(w, resp.Body)
		}))
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"order":1042}`))
	r.Header.Set("Idempotency-Key", "order-1042")
	w := httptest.NewRecorder()
	shop.ServeHTTP(w, r)
	fmt.Println(w.Body)
	// Output:
	// b8c09940-efcf-8aa7-93fa-83bddf5ba8c8
	// charge 1
}

func ExampleStripeShouldRetry() {
	t := &client.Transport{Judge: client.StripeShouldRetry}
	resp := &http.Response{StatusCode: http.StatusConflict, Header: http.Header{"Stripe-Should-Retry": {"true"}}}
	fmt.Println(t.Judge(resp) == client.Retry)
	// Output: true
}
