package main

import (
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
)

// logFlags say what a server logs.
type logFlags struct {
	level  string
	format string
}

func (f *logFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.level, "log-level", "info", "what is logged: debug, info, warn or error")
	c.Flags().StringVar(&f.format, "log-format", "text", "how: text or json")
	complete(c, "log-level", "debug", "info", "warn", "error")
	complete(c, "log-format", "text", "json")
}

// log returns the log that the flags ask for.
func (f *logFlags) log(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil || !slices.Contains([]string{"debug", "info", "warn", "error"}, f.level) {
		return nil, usage("--log-level %q: want debug, info, warn or error", f.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("--log-format %q: want text or json", f.format)
}
