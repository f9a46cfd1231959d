//go:build !linux

package testenv

func roomInMemory() bool { return false }
