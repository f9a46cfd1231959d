//go:build race

package index_test

// thrift divides the volume of the tests that are all computation: the race
// detector slows them twentyfold, and their volume adds nothing that it sees.
const thrift = 5
