package main

import (
	"os"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

// removeNotes removes what fetch says of a run from documents that it printed: notes FILE….
func removeNotes(ts *testscript.TestScript, _ bool, args []string) {
	line := regexp.MustCompile(`(?m)^  annotations:\n(    source\.headgate\.dev/(outcome|why): .*\n)+`)
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(line.ReplaceAllString(ts.ReadFile(name), "")), 0o666))
	}
}

type keptKey struct{}

// startServe starts headgate serve and sets $SOURCES to its URL: serving FLAG….
// It is ended with the script, or by: serving end.
func startServe(ts *testscript.TestScript, _ bool, args []string) {
	runServer(ts, keptKey{}, "serve", "SOURCES", args)
}
