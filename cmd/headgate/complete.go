package main

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
)

// completionTime is how long a server may take to say what there is to offer.
const completionTime = 2 * time.Second

// complete makes the shell offer values for a flag of c.
func complete(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // c has no such flag
	}
}

// completeObjects offers the objects in the files of -f; never those on
// standard input, which is the user's terminal.
func completeObjects(files *[]string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set := new(source.Set)
		quiet := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
		for _, name := range *files {
			if name != "-" {
				_ = quiet.loadFile(set, name) // what can be read is offered
			}
		}
		return addresses(set), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeStored offers the objects of a store, and files.
func completeStored(dir *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set, _ := ledgerOf(*dir).List() // what can be read is offered
		return addresses(set), cobra.ShellCompDirectiveDefault
	}
}

// completeIndexes offers the repositories of charts among the objects of -f, or
// in the store, and files.
func completeIndexes(files *[]string, store *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		complete := completeStored(store)
		if len(*files) > 0 {
			complete = completeObjects(files)
		}
		names, directive := complete(c, args, start)
		return slices.DeleteFunc(names, func(name string) bool {
			ref, err := source.ParseReference(name)
			return err != nil || ref.Kind != "PkgRepository"
		}), directive
	}
}

func addresses(set *source.Set) []string {
	names := make([]string, len(set.Objects))
	for i, obj := range set.Objects {
		names[i] = argumentOf(obj)
	}
	return names
}
