//go:build race

package run_test

// thrift divides the volume of the tests that are all computation: the race
// detector makes them many times as long.
const thrift = 8
