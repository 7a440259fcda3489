// Package vectors states what an HTTP client may rely on when it repeats a
// request with an Idempotency-Key, as data: JSON files of request sequences with
// the answers and the numbers of handler runs that have to come of them. They say
// nothing about Go. README.md describes the files and the few endpoints that a
// server needs to be measured by them; [Runner] measures one, and [Target] is the
// test handler for Go.
package vectors

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

//go:embed *.json
var files embed.FS

// Level says how much weight a vector has.
type Level string

// The levels.
const (
	Core   Level = "core"   // what every implementation owes its callers
	Choice Level = "choice" // a decision of this library's where others may differ
)

// A Vector is one named sequence of steps. Vectors do not depend on each other.
type Vector struct {
	Name  string `json:"name"`  // lower case, unique
	Level Level  `json:"level"` // Core or Choice
	Why   string `json:"why"`   // the rule it stands for, in a sentence
	Steps []Step `json:"steps"`
}

// A Step does one of three things: it sends a request, it opens a path whose
// handlers are held, or it joins a request that was sent in the background.
// Then it checks the answer, where there is one, and the run counts.
type Step struct {
	Send       *Request `json:"send,omitempty"`
	Background string   `json:"background,omitempty"` // the name under which Send's answer is joined later
	Join       string   `json:"join,omitempty"`
	Open       string   `json:"open,omitempty"`

	Expect *Expect        `json:"expect,omitempty"`
	Runs   map[string]int `json:"runs,omitempty"` // how often the handler of a path has run by now
}

// Request is what a step sends.
type Request struct {
	Method  string              `json:"method,omitempty"`  // POST
	Profile string              `json:"profile,omitempty"` // "default" or "required"
	Path    string              `json:"path"`              // below the vector's own place, with its query
	User    *string             `json:"user,omitempty"`    // "ann"; "" sends none
	Headers map[string][]string `json:"headers,omitempty"`
	Body    string              `json:"body,omitempty"`
	Answer  *Answer             `json:"answer,omitempty"` // what the handler is told to do; nil: 200 without a body
}

// Answer is what the test handler is told to do, in the header Vector-Answer.
type Answer struct {
	Status  int                 `json:"status,omitempty"` // 200
	Headers map[string][]string `json:"headers,omitempty"`
	Body    string              `json:"body,omitempty"`
	Base64  string              `json:"base64,omitempty"` // a body that is not text
	Size    int                 `json:"size,omitempty"`   // a body of so many letters x
	Hold    bool                `json:"hold,omitempty"`   // wait until the path is opened
	Flush   bool                `json:"flush,omitempty"`  // send the first half of the body on its way before the rest
	Abort   bool                `json:"abort,omitempty"`  // break down instead of answering
}

// Expect is what the answer has to be like. What is left out is not checked.
type Expect struct {
	Status   []int             `json:"status,omitempty"`   // one of these
	Run      int               `json:"run,omitempty"`      // which run of the handler made it (the header Vector-Run)
	SameAs   int               `json:"same_as,omitempty"`  // the number of the step, from 1, with the same status, body, Content-Type and run
	Headers  map[string]string `json:"headers,omitempty"`  // all lines of a header, joined by a comma and a space
	Patterns map[string]string `json:"patterns,omitempty"` // a regular expression for the same
	Absent   []string          `json:"absent,omitempty"`   // headers that must not be there
	Body     *string           `json:"body,omitempty"`
	Length   *int              `json:"length,omitempty"`  // of the body, in bytes
	Lacks    string            `json:"lacks,omitempty"`   // what must not stand in the body
	Problem  map[string]any    `json:"problem,omitempty"` // members of the problem document; null: any value
	Broken   bool              `json:"broken,omitempty"`  // no answer at all, or a 500
}

// All returns the vectors in the order of their files. It fails if a file is not
// well made, which a release never has.
func All() ([]Vector, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("vectors: %w", err)
	}
	var all []Vector
	for _, entry := range entries {
		data, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("vectors: %w", err)
		}
		vs, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%w (in %s)", err, entry.Name())
		}
		all = append(all, vs...)
	}
	return all, unique(all)
}

func unique(all []Vector) error {
	seen := make(map[string]bool, len(all))
	for _, v := range all {
		if seen[v.Name] {
			return fmt.Errorf("vectors: two vectors are named %q", v.Name)
		}
		seen[v.Name] = true
	}
	return nil
}

// Parse reads one file of vectors. Unknown members are an error: a misspelt
// expectation must not pass for one that holds.
func Parse(data []byte) ([]Vector, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var vs []Vector
	if err := d.Decode(&vs); err != nil {
		return nil, fmt.Errorf("vectors: %w", err)
	}
	for _, v := range vs {
		if err := v.check(); err != nil {
			return nil, fmt.Errorf("vectors: %s: %w", v.Name, err)
		}
	}
	return vs, nil
}

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (v Vector) check() error {
	switch {
	case !namePattern.MatchString(v.Name):
		return errors.New("the name is not lower-case words joined by hyphens")
	case v.Level != Core && v.Level != Choice:
		return fmt.Errorf("unknown level %q", v.Level)
	case v.Why == "" || len(v.Steps) == 0:
		return errors.New("the reason or the steps are missing")
	}
	var sent []string
	for i, s := range v.Steps {
		if err := s.check(i, v.Steps, sent); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if s.Background != "" {
			sent = append(sent, s.Background)
		}
	}
	return nil
}

func (s Step) check(i int, steps []Step, sent []string) error {
	does := 0
	for _, one := range []bool{s.Send != nil, s.Join != "", s.Open != ""} {
		if one {
			does++
		}
	}
	answered := s.Join != "" || s.Send != nil && s.Background == ""
	switch {
	case does != 1:
		return errors.New("a step sends, joins or opens, and does one of them")
	case s.Background != "" && s.Send == nil:
		return errors.New("only what is sent can be in the background")
	case s.Join != "" && !slices.Contains(sent, s.Join):
		return fmt.Errorf("nothing was sent in the background as %q", s.Join)
	case answered != (s.Expect != nil):
		return errors.New("a step that has an answer, and no other, says what it expects of it")
	case s.Expect == nil:
		return nil
	case s.Expect.SameAs > i || s.Expect.SameAs > 0 && steps[s.Expect.SameAs-1].Expect == nil:
		return errors.New("same_as is the number of an earlier step that has an answer")
	}
	for _, p := range s.Expect.Patterns {
		if _, err := regexp.Compile(p); err != nil {
			return err
		}
	}
	return nil
}
