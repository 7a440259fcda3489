package history_test

import "sync"

// signal is given once.
type signal struct {
	given chan struct{}
	give  func() // may be called again
}

func newSignal() signal {
	c := make(chan struct{})
	return signal{c, sync.OnceFunc(func() { close(c) })}
}
