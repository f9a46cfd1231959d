package main

import (
	"context"
	"slices"

	"github.com/headgate-io/headgate/source"
)

// each does something with every object, as many at once as --parallel says.
// An object comes once those it is made of are done, and otherwise in the order
// of objects.
func (s *session) each(ctx context.Context, objects []source.Object, do func(context.Context, *row)) []*row {
	rows := make([]*row, len(objects))
	waiting := make([]int, len(objects)) // how many are to be done before
	after := make([][]int, len(objects)) // which ones wait
	var ready []int                      // sorted
	for i, before := range source.Order(objects) {
		rows[i], waiting[i] = &row{object: objects[i]}, len(before)
		for _, b := range before {
			after[b] = append(after[b], i)
		}
		if len(before) == 0 {
			ready = append(ready, i)
		}
	}
	done := make(chan int)
	for running := 0; running > 0 || len(ready) > 0; {
		if len(ready) > 0 && running < s.flags.parallel {
			i := ready[0]
			ready = ready[1:]
			running++
			go func() {
				do(ctx, rows[i])
				done <- i
			}()
			continue
		}
		i := <-done
		running--
		for _, next := range after[i] {
			if waiting[next]--; waiting[next] == 0 {
				at, _ := slices.BinarySearch(ready, next)
				ready = slices.Insert(ready, at, next)
			}
		}
	}
	return rows
}
