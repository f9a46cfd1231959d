package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// buildVersion tells the module's version, the commit it was built from and the toolchain.
func buildVersion() string {
	version, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value
			}
		}
	}
	return "headgate " + version + commit + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
