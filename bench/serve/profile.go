package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile begins a profile of the processor, if profiles are wanted.
func profile(what string) error {
	if *profiles == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(*profiles, os.Args[1]+"-"+what+".cpu"))
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// endProfile ends it, and writes one of the memory.
func endProfile(what string) error {
	if *profiles == "" {
		return nil
	}
	pprof.StopCPUProfile()
	runtime.GC()
	f, err := os.Create(filepath.Join(*profiles, os.Args[1]+"-"+what+".memory"))
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("allocs").WriteTo(f, 0)
}
