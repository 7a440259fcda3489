package history_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// action is one operation of a history, on the one key that it is about.
type action struct {
	what        string // begin, end, answer, lost claim made, lost claim freed
	request     int
	fingerprint string
}

// outcome is what came of an action.
type outcome struct {
	what string // of end: recorded, freed, unknown; of answer: replayed, busy, mismatch
	text string // the answer
}

// keyState is a key as one would keep it if nothing ever happened at once.
type keyState struct {
	what        string // "", running, completed
	request     int    // that runs, or whose lost claim it is
	fingerprint string
	text        string
}

// keyModel is what a key may do, one action after the other. What is unknown
// (a call whose reply was lost) may have happened or not.
var keyModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{keyState{}} },
	Step: func(s, in, out any) []any { return step(s.(keyState), in.(action), out.(outcome)) },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%v %v", in, out)
	},
}

func step(s keyState, in action, out outcome) []any {
	running := keyState{what: "running", request: in.request, fingerprint: in.fingerprint}
	mine := s == running
	switch in.what {
	case "begin": // a run begins only where the key is free
		if s.what == "" {
			return []any{running}
		}
	case "end":
		recorded := keyState{what: "completed", fingerprint: in.fingerprint, text: out.text}
		switch {
		case mine && out.what == "recorded":
			return []any{recorded}
		case mine && out.what == "freed":
			return []any{keyState{}}
		case mine && out.what == "unknown":
			return []any{keyState{}, recorded}
		}
	case "lost claim made":
		if s.what == "" {
			return []any{s, running}
		}
		return []any{s}
	case "lost claim freed":
		if mine {
			return []any{s, keyState{}}
		}
		return []any{s}
	case "answer":
		same := s.fingerprint == in.fingerprint
		switch {
		case out.what == "replayed" && s.what == "completed" && same && s.text == out.text,
			out.what == "busy" && s.what == "running",
			out.what == "mismatch" && s.what != "" && !same:
			return []any{s}
		}
	}
	return nil
}
