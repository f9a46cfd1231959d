package controller

import "container/heap"

// agenda is the entries that are due some time, the next one first.
type agenda []*entry

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool { return a[i].due < a[j].due }

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}

func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.at = len(*a)
	*a = append(*a, e)
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	e.at = -1
	return e
}

// put makes the agenda agree with the due time of e.
func (a *agenda) put(e *entry) {
	if e.at < 0 {
		heap.Push(a, e)
		return
	}
	heap.Fix(a, e.at)
}

// drop takes e out, if it is there.
func (a *agenda) drop(e *entry) {
	if e.at >= 0 {
		heap.Remove(a, e.at)
	}
}
