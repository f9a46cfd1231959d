// Package measure tells tests what their code takes of the process.
//
// What else goes on in the process counts too: servers of the same test,
// connections of earlier ones that still close. Neither the time of a garbage
// collection nor what pools keep does. A bound leaves room for all that, a few
// MiB at least, and is a fraction of what the defect would take that it guards
// against. A test that measures does not run in parallel with others.
package measure

import (
	"runtime"
	"runtime/metrics"
)

// Live returns how many bytes of the heap are reachable. What is allocated while
// it counts may be among them: it is for moments at which little goes on.
func Live() int64 {
	runtime.GC()
	runtime.GC() // what was in a pool or waited for its finalizer goes with the second one
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// Allocated returns how many bytes are allocated while do runs, whether they
// are garbage by then or not.
func Allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}
