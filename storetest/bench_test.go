package storetest_test

import (
	"testing"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

func BenchmarkReference(b *testing.B) {
	storetest.Bench(b, func(*testing.B) idempotency.Store { return newReference() })
}
