//go:build race

package simulate

// thrift divides the volume of the tests that are all computation: the race
// detector slows them tenfold, and they have one goroutine.
const thrift = 8
