package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
)

// serve serves the API on address until ctx ends, to be tried by hand.
func serve(ctx context.Context, address string, store idempotency.Store, out io.Writer) error {
	book := &ledger{}
	guard := newGuard(store, idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
		fmt.Fprintf(out, "%s %s %s: %s %s %d\n", e.Key.User, e.Key.Endpoint, e.Key.Value, e.Outcome, e.Code, e.Status)
	}))
	mux := http.NewServeMux()
	mux.Handle("/", newAPI(book, guard.Handler))
	mux.HandleFunc("GET /charges", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, book.list())
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Fprintf(out, "POST http://%[1]s/payments pays, GET http://%[1]s/charges shows what was charged. Ctrl-C ends it.\n", listener.Addr())

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(server.Shutdown(ending), guard.Drain(ending)) // in this order
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
