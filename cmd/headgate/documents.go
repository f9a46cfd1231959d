package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source"
)

func (p *program) convert() *cobra.Command {
	var files []string
	var version, group, output string
	c := &cobra.Command{
		Use:   "convert -f FILE|DIR|- [--to v1|v1beta2] [--group GROUP]",
		Short: "Rewrite objects in another API version or group",
		Long: `Convert prints the objects in another version (v1, v1beta2), in another group (` + source.Group + `, or
` + source.ReferenceGroup + ` with the kind names that go with it), or both. What the version cannot say is dropped with a warning.`,
		Args: onlyFiles,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usage("give objects with -f")
			}
			if output != "yaml" && output != "json" {
				return usage("-o %q: want yaml or json", output)
			}
			return p.runConvert(files, version, group, output)
		},
	}
	registerFiles(c, &files)
	c.Flags().StringVar(&version, "to", "", "`VERSION`: v1 or v1beta2; default as it is")
	c.Flags().StringVar(&group, "group", "", "`GROUP` of the result; default as it is")
	c.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	complete(c, "to", "v1", "v1beta2")
	complete(c, "group", source.Group, source.ReferenceGroup)
	complete(c, "output", "yaml", "json")
	return c
}

func (p *program) runConvert(files []string, version, group, output string) error {
	var set source.Set
	bad := p.load(&set, files, false)
	var converted []source.Object
	for _, obj := range set.Objects {
		to, warnings, err := source.Convert(obj, version, group)
		for _, w := range warnings {
			fmt.Fprintf(p.stderr, "warning: %v\n", w)
		}
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		converted = append(converted, to)
	}
	if err := printDocuments(p.stdout, output, converted); err != nil {
		return failed(err)
	}
	if bad != nil {
		return &exitError{exitUsage, bad}
	}
	return nil
}

// onlyFiles refuses arguments of a command that works on all of -f.
func onlyFiles(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but got %q: give files and directories with -f", c.Name(), args[0])
	}
	return nil
}
