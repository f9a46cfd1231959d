//go:build !race

package controller_test

const race = false
