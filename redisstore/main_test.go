package redisstore_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are processors: they mostly
// wait, for a lease to lapse or a server to start.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "8")
	}
	os.Exit(m.Run())
}
