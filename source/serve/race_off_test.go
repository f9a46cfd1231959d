//go:build !race

package serve_test

const race = false
