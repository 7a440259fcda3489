package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check returns what of want does not hold of got.
func (c *course) check(want *Expect, got answer) error {
	if want.Broken {
		if got.err == nil && got.status != http.StatusInternalServerError {
			return fmt.Errorf("answered %d, expected no answer or a 500", got.status)
		}
		return nil
	}
	if got.err != nil {
		return fmt.Errorf("no answer: %w", got.err)
	}
	var failed []error
	fail := func(format string, args ...any) { failed = append(failed, fmt.Errorf(format, args...)) }
	if len(want.Status) > 0 && !slices.Contains(want.Status, got.status) {
		fail("answered %d, expected %v", got.status, want.Status)
	}
	if run := got.header.Get(HeaderRun); want.Run > 0 && run != strconv.Itoa(want.Run) {
		fail("the answer is of run %q of the handler, expected %d", run, want.Run)
	}
	if want.SameAs > 0 {
		failed = append(failed, same(c.answers[want.SameAs], got))
	}
	failed = append(failed, checkHeader(want, got.header), checkBody(want, got.body))
	if want.Problem != nil {
		failed = append(failed, checkProblem(want.Problem, got))
	}
	return errors.Join(failed...)
}

// same compares what a replay has to keep.
func same(first, again answer) error {
	switch {
	case first.err != nil:
		return errors.New("the answer to compare with is missing")
	case first.status != again.status:
		return fmt.Errorf("answered %d, the first time %d", again.status, first.status)
	case !bytes.Equal(first.body, again.body):
		return fmt.Errorf("the body is %s, the first time %s", excerpt(again.body), excerpt(first.body))
	}
	for _, name := range []string{"Content-Type", HeaderRun} {
		if was, is := first.header.Values(name), again.header.Values(name); !slices.Equal(was, is) {
			return fmt.Errorf("%s is %q, the first time %q", name, is, was)
		}
	}
	return nil
}

func checkHeader(want *Expect, h http.Header) error {
	var failed []error
	for name, value := range want.Headers {
		if got := strings.Join(h.Values(name), ", "); got != value {
			failed = append(failed, fmt.Errorf("%s is %q, expected %q", name, got, value))
		}
	}
	for name, pattern := range want.Patterns {
		got := strings.Join(h.Values(name), ", ")
		if ok, err := regexp.MatchString(pattern, got); err != nil || !ok {
			failed = append(failed, fmt.Errorf("%s is %q, expected %s", name, got, pattern))
		}
	}
	for _, name := range want.Absent {
		if got := h.Values(name); len(got) > 0 {
			failed = append(failed, fmt.Errorf("%s is %q, expected none", name, got))
		}
	}
	return errors.Join(failed...)
}

func checkBody(want *Expect, body []byte) error {
	switch {
	case want.Body != nil && string(body) != *want.Body:
		return fmt.Errorf("the body is %s, expected %s", excerpt(body), excerpt([]byte(*want.Body)))
	case want.Length != nil && len(body) != *want.Length:
		return fmt.Errorf("the body has %d bytes, expected %d", len(body), *want.Length)
	case want.Lacks != "" && bytes.Contains(body, []byte(want.Lacks)):
		return fmt.Errorf("the body holds %q", want.Lacks)
	}
	return nil
}

func checkProblem(want map[string]any, got answer) error {
	if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("the Content-Type is %q, expected application/problem+json", kind)
	}
	var members map[string]any
	if err := json.Unmarshal(got.body, &members); err != nil {
		return fmt.Errorf("the body is no problem document: %w", err)
	}
	var failed []error
	for name, value := range want {
		is, there := members[name]
		if !there || value != nil && !reflect.DeepEqual(is, value) {
			failed = append(failed, fmt.Errorf("the problem's member %s is %v, expected %v", name, is, value))
		}
	}
	return errors.Join(failed...)
}

func excerpt(b []byte) string {
	if len(b) > 80 {
		return fmt.Sprintf("%q… (%d bytes)", b[:80], len(b))
	}
	return strconv.Quote(string(b))
}
