//go:build !race

package artifact

// Thrift divides the volume of the tests that are all computation.
const Thrift = 1
