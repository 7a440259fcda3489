package model_test

import (
	"fmt"
	"strings"
)

// result is what an exploration has found.
type result struct {
	states, steps, depth int
	broken               string
	story                []string
}

func (r result) String() string {
	if r.broken == "" {
		return fmt.Sprintf("%d states, %d steps, %d deep", r.states, r.steps, r.depth)
	}
	return fmt.Sprintf("%s, after:\n  %s", r.broken, strings.Join(r.story, "\n  "))
}

// explore goes through every state that can be reached, nearest first, so that
// the story of what breaks is as short as there is one.
func (r rules) explore() (res result) {
	type origin struct {
		from  int32
		depth int32
	}
	var first state
	seen := map[state]int32{first: 0}
	queue := []state{first}
	origins := []origin{{from: -1}}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		res.depth = int(origins[i].depth)
		broken := r.holds(&s)
		last := ""
		r.steps(&s, func(n state, story func() string, b string) {
			res.steps++
			if broken != "" {
				return
			}
			if b != "" {
				broken, last = b, story()
				return
			}
			if _, ok := seen[n]; ok {
				return
			}
			seen[n] = int32(len(queue))
			queue = append(queue, n)
			origins = append(origins, origin{int32(i), origins[i].depth + 1})
		})
		if broken != "" {
			res.broken = broken
			for at := int32(i); origins[at].from >= 0; at = origins[at].from {
				res.story = append([]string{r.between(queue[origins[at].from], queue[at])}, res.story...)
			}
			if last != "" {
				res.story = append(res.story, last)
			}
			break
		}
	}
	res.states = len(queue)
	return res
}

// between tells the step from one state to another.
func (r rules) between(from, to state) (story string) {
	r.steps(&from, func(n state, s func() string, _ string) {
		if n == to && story == "" {
			story = s()
		}
	})
	return story
}
