package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A byteValue is a flag of a number of bytes, at least as many as least.
type byteValue struct {
	bytes *int64
	least int64
}

// unsetBytes is the value of a flag that was not given and whose default depends on the machine.
const unsetBytes = math.MinInt64

func bytesVar(c *cobra.Command, bytes *int64, name string, value, least int64, usage string) {
	*bytes = value
	c.Flags().Var(&byteValue{bytes, least}, name, usage)
}

func (v *byteValue) Set(text string) error {
	n, err := parseBytes(text)
	if err == nil && n < v.least {
		err = fmt.Errorf("want %d or more", v.least)
	}
	if err != nil {
		return err
	}
	*v.bytes = n
	return nil
}

func (v *byteValue) Type() string { return "bytes" }

func (v *byteValue) String() string {
	n := *v.bytes
	if n == unsetBytes {
		return "" // which help does not show
	}
	for _, unit := range byteUnits {
		if n != 0 && n%unit.factor == 0 {
			return strconv.FormatInt(n/unit.factor, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// byteUnits are the units of numbers of bytes, the largest first.
var byteUnits = []struct {
	suffix string
	factor int64
}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}}

// parseBytes reads a number of bytes, with the units Ki, Mi and Gi.
func parseBytes(text string) (int64, error) {
	digits, factor := text, int64(1)
	for _, unit := range byteUnits {
		if before, found := strings.CutSuffix(text, unit.suffix); found {
			digits, factor = before, unit.factor
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, errors.New("want a number of bytes as 65536, 64Ki, 1Mi or 1Gi")
	}
	return n * factor, nil
}

// A spanValue is a flag of a time span: a duration, or a number of seconds.
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

// String writes 1h for 1h0m0s; the zero value is "0", which help does not show.
func (v spanValue) String() string {
	text := v.span.String()
	for _, zero := range []struct{ from, to string }{{"m0s", "m"}, {"h0m", "h"}} {
		if before, found := strings.CutSuffix(text, zero.from); found {
			text = before + zero.to
		}
	}
	if text == "0s" {
		return "0"
	}
	return text
}

// flagError says what a flag wants, or where flags are listed.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usage("%w: see %s --help", err, c.CommandPath())
	}
	f := invalid.GetFlag()
	wants := map[string]string{"int": "want a whole number", "float64": "want a number", "bool": "want true or false"}
	want, known := wants[f.Value.Type()]
	if !known {
		want = invalid.Unwrap().Error()
	}
	return usage("--%s %q: %s", f.Name, invalid.GetValue(), want)
}

// arguments wants from least to most arguments, any number from least on when
// most is negative; the usage line says which.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage("an argument is missing: %s", c.UseLine())
		case most >= 0 && len(args) > most:
			return usage("%q is an argument too many: %s", args[most], c.UseLine())
		}
		return nil
	}
}
