//go:build race

package artifact

// Thrift divides the volume of the tests that are all computation: the race
// detector slows them twentyfold, and their volume adds nothing that it sees.
const Thrift = 5
