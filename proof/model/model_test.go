package model_test

import (
	"flag"
	"testing"
)

var deep = flag.Bool("deep", false, "go through the largest configurations, too")

// TestProtocol goes through every state of the protocol, and finds none in which
// a promise is broken.
func TestProtocol(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rules rules
		deep  bool
	}{
		{name: "two processes", rules: rules{procs: 2, tries: 1}},
		{name: "two processes, at most once", rules: rules{procs: 2, tries: 1, atMostOnce: true}},
		{name: "two processes, at most once, with a reconciler", rules: rules{procs: 2, tries: 1, atMostOnce: true, reconciler: true}},
		{name: "two processes with two bodies", rules: rules{procs: 2, tries: 1, mixed: true}},
		{name: "three processes", rules: rules{procs: 3, tries: 1, mixed: true}},
		{name: "three processes, at most once", rules: rules{procs: 3, tries: 1, mixed: true, atMostOnce: true}},
		{name: "three processes, at most once, with a reconciler", rules: rules{procs: 3, tries: 1, mixed: true, atMostOnce: true, reconciler: true}},
		{name: "two processes that try twice", rules: rules{procs: 2, tries: 2}, deep: true},
		{name: "two processes that try twice, at most once", rules: rules{procs: 2, tries: 2, atMostOnce: true}, deep: true},
		{name: "two processes that try twice, at most once, with a reconciler", rules: rules{procs: 2, tries: 2, atMostOnce: true, reconciler: true}, deep: true},
	}
	total := 0
	for _, tt := range tests {
		// The race detector has nothing to find here, and takes ten times as long.
		if tt.deep && !*deep || tt.rules.procs > 2 && raced {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			res := tt.rules.explore()
			t.Log(res)
			total += res.states
			if res.broken != "" {
				t.Fatal("the protocol breaks a promise")
			}
		})
	}
	t.Logf("%d states in all", total)
}
