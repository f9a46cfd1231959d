package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// sourceFlags select the sources that a command processes, and configure how they are fetched.
type sourceFlags struct {
	documentFlags
	urlFlags
	outputFlags
	docker   string
	networks []string
	from     []string
	secrets  string
	store    string
	parallel int
	maxBytes int64
}

func (f *sourceFlags) register(c *cobra.Command) {
	f.documentFlags.register(c)
	f.registerFrom(c)
	f.registerWork(c)
	f.urlFlags.register(c, true)
	c.ValidArgsFunction = f.completeObjects
}

// registerWork adds the flags of commands that process several objects concurrently.
func (f *sourceFlags) registerWork(c *cobra.Command) {
	c.Flags().IntVar(&f.parallel, "parallel", 4, "number of objects processed at the same time")
	registerSecrets(c, &f.secrets)
	f.registerLogin(c)
	f.outputFlags.register(c, "table", "wide", "json", "yaml", "name")
}

// registerFrom adds the flag that replaces origins by local directories.
func (f *sourceFlags) registerFrom(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.from, "from", nil, "`URL=PATH`: read the local Git repository or directory PATH instead of the origin URL, which is ENDPOINT/BUCKET for a bucket; repeatable")
}

// registerAccess adds the flags that configure access to origins. If objects is set, it also adds
// the URL flags about objects.
func (f *sourceFlags) registerAccess(c *cobra.Command, objects bool) {
	registerSecrets(c, &f.secrets)
	f.urlFlags.register(c, objects)
	f.registerLogin(c)
}

// registerLogin adds the flags for Docker logins and for permitted networks.
func (f *sourceFlags) registerLogin(c *cobra.Command) {
	c.Flags().StringVar(&f.docker, "docker-config", "", "use the logins and credential helpers of docker where a spec names no credentials; =`FILE` is a config.json or its directory; default $DOCKER_CONFIG or ~/.docker")
	c.Flags().Lookup("docker-config").NoOptDefVal = dockerDefault
	c.Flags().StringSliceVar(&f.networks, "allow-network", nil, "`HOST`, address or network (10.0.0.0/8) to which servers may redirect or refer although it is in a more private network than they are; never a metadata service; repeatable, or separated by commas")
}

// registerLimit adds the size limit for commands that read untrusted content.
func registerLimit(c *cobra.Command, limit *int64) {
	bytesVar(c, limit, "max-bytes", 0, -1, "maximum uncompressed `BYTES` of one source; 0 is the default of its kind, -1 no limit")
}

func registerSecrets(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "secrets", "", "`DIR` of Secrets, as files NAME/KEY or NAMESPACE/NAME/KEY; Secrets in documents come first, variables HEADGATE_SECRET_NAME_KEY last")
}

func registerStore(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "store", ".headgate", "`DIR` of the store: artifacts, and the status of each object")
}

// completeFlag registers values for the completion of a flag of c.
func completeFlag(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // c lacks the flag: a bug
	}
}

// completeNames returns a completion function for up to maxArgs arguments. It offers the names that begin with
// the typed text, ignoring case.
func completeNames(maxArgs int, names func(ctx context.Context, c *cobra.Command, args []string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= maxArgs {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second) // time limit for a server
		defer cancel()
		return slices.DeleteFunc(names(ctx, c, args), func(name string) bool {
			return !strings.HasPrefix(strings.ToLower(name), strings.ToLower(start))
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// mapSlice returns f(v) for each value v.
func mapSlice[T, U any](values []T, f func(T) U) []U {
	all := make([]U, len(values))
	for i, v := range values {
		all[i] = f(v)
	}
	return all
}

// joinOr joins words with commas and a final "or".
func joinOr(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// rangeArgs returns a check for minArgs to maxArgs arguments. If maxArgs is negative, there is no maximum.
func rangeArgs(minArgs, maxArgs int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch docker := c.Flags().Lookup("docker-config"); {
		case len(args) < minArgs:
			return usage("an argument is missing: %s", c.UseLine())
		case maxArgs < 0 || len(args) <= maxArgs:
			return nil
		case docker != nil && docker.Value.String() == dockerDefault:
			return usage("%q is an argument too many: for --docker-config write --docker-config=FILE", args[maxArgs])
		}
		return usage("%q is an argument too many: %s", args[maxArgs], c.UseLine())
	}
}

// logFlags configure the log of a server.
type logFlags struct{ level, format string }

func (f *logFlags) register(c *cobra.Command) {
	choiceVar(c, &f.level, "log-level", "info", "least severe messages that are logged: debug, info, warn or error", "debug", "info", "warn", "error")
	choiceVar(c, &f.format, "log-format", "text", "format of the log: text or json", "text", "json")
}

// logger returns a logger that writes to w as the flags say.
func (f *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // Set has checked the level
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// A choiceValue is a flag whose value is one of words, or its default.
type choiceValue struct {
	value        *string
	defaultValue string
	words        []string
}

func choiceVar(c *cobra.Command, value *string, name, standard, usage string, words ...string) {
	*value = standard
	c.Flags().Var(choiceValue{value, standard, words}, name, usage)
	completeFlag(c, name, words...)
}

func (v choiceValue) Set(text string) error {
	if text != v.defaultValue && !slices.Contains(v.words, text) {
		return errors.New("want " + joinOr(v.words))
	}
	*v.value = text
	return nil
}

func (v choiceValue) String() string { return *v.value }
func (v choiceValue) Type() string   { return "string" }

// A byteValue is a flag for a number of bytes of at least least.
type byteValue struct {
	bytes *int64
	least int64
}

// unsetBytes marks a flag that was not given and whose default depends on the machine.
const unsetBytes = math.MinInt64

func bytesVar(c *cobra.Command, bytes *int64, name string, value, minimum int64, usage string) {
	*bytes = value
	c.Flags().Var(&byteValue{bytes, minimum}, name, usage)
}

// byteUnits are the units of byteValue, the largest first.
var byteUnits = []struct {
	suffix string
	factor int64
}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}

func (v *byteValue) Set(text string) error {
	for _, unit := range byteUnits {
		digits, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case err != nil || n > math.MaxInt64/unit.factor || n < math.MinInt64/unit.factor:
			return errors.New("want a number of bytes as 65536, 64Ki, 1Mi or 1Gi")
		case n*unit.factor < v.least:
			return fmt.Errorf("want %d or more", v.least)
		}
		*v.bytes = n * unit.factor
		return nil
	}
	return nil
}

func (v *byteValue) Type() string { return "bytes" }

func (v *byteValue) String() string {
	n := *v.bytes
	for _, unit := range byteUnits {
		if n != unsetBytes && (n != 0 && n%unit.factor == 0 || unit.factor == 1) {
			return strconv.FormatInt(n/unit.factor, 10) + unit.suffix
		}
	}
	return "" // help omits an empty default
}

// A spanValue is a flag for a time span: a duration, or a number of seconds.
type spanValue struct{ span *time.Duration }

func spanVar(c *cobra.Command, span *time.Duration, name string, value time.Duration, usage string) {
	*span = value
	c.Flags().Var(spanValue{span}, name, usage)
}

func (v spanValue) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration as 90s, 5m or 1h30m, or seconds")
	}
	*v.span = span
	return nil
}

func (v spanValue) Type() string { return "duration" }

// String returns 1h for 1h0m0s, and 0 for 0s. Help omits the default 0.
func (v spanValue) String() string {
	if *v.span == 0 {
		return "0"
	}
	text := v.span.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
