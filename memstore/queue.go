package memstore

import "time"

// queue is a binary heap, the earliest due first.
type queue []place

// place is an entry's place in the queue. due is the entry's end or earlier, and
// stands here so that comparing does not touch the entries.
type place struct {
	due   time.Duration
	entry *entry
}

func (q *queue) push(e *entry) {
	*q = append(*q, place{due: e.end, entry: e})
	q.up(len(*q) - 1)
}

// remove takes out the place at i.
func (q *queue) remove(i int) {
	last := len(*q) - 1
	moved := (*q)[last]
	(*q)[last] = place{}
	*q = (*q)[:last]
	if i < last {
		(*q)[i] = moved
		q.settle(i)
	}
}

// move gives the place at i another time.
func (q *queue) move(i int, due time.Duration) {
	(*q)[i].due = due
	q.settle(i)
}

func (q *queue) settle(i int) {
	q.up(i)
	q.down(i)
}

func (q *queue) up(i int) {
	h := *q
	p := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].due <= p.due {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, p)
}

func (q *queue) down(i int) {
	h := *q
	p := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].due < h[child].due {
			child = right
		}
		if p.due <= h[child].due {
			break
		}
		h.put(i, h[child])
		i = child
	}
	h.put(i, p)
}

func (q queue) put(i int, p place) {
	q[i] = p
	p.entry.index = i
}
