package idempotency_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

// prefixed prints JSON with its members on lines of their own.
type prefixed struct{}

func (prefixed) Write(p []byte) (int, error) {
	var b bytes.Buffer
	err := json.Indent(&b, p, "", "  ")
	fmt.Println(b.String())
	return len(p), err
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
