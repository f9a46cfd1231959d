// Package measure measures the memory and the goroutines that the code of a test uses.
//
// It measures the whole process, including servers of the same test and
// connections of earlier tests that are still closing. The results depend neither
// on when the garbage collector runs nor on what pools keep. A bound should leave
// room for other activity, at least a few MiB, and be a fraction of what the defect
// that it guards against would use. A test that measures must not run in parallel
// with others.
package measure

import (
	"runtime"
	"runtime/metrics"
)

// LiveBytes returns how many bytes of the heap are reachable. Allocations made during
// the call may be counted, so call it while the process is mostly idle.
func LiveBytes() int64 {
	runtime.GC()
	runtime.GC() // the second one frees the content of pools and objects with finalizers
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// AllocatedBytes returns how many bytes are allocated while do runs, including those
// that are garbage when it returns.
func AllocatedBytes(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}
