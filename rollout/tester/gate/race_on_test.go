//go:build race

package gate_test

// thrift divides the volume of the tests that are all computation.
const thrift = 8
