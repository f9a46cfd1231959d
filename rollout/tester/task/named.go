package task

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/command"
)

// parameter is ${NAME} in a command line of [Tools.Commands].
var parameter = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

const argPrefix = "arg."

func (t *Tools) onlyNamed() error {
	return fmt.Errorf(`metadata cmd: only named commands may be run here, by types cmd and bash: %s`, strings.Join(t.names(), ", "))
}

func (t *Tools) names() []string {
	names := slices.Sorted(maps.Keys(t.Commands))
	for i := range names {
		names[i] = "@" + names[i]
	}
	return names
}

// named returns the words of a named command with its parameters filled in, each
// from metadata arg.NAME and within one word. A value does not make an
// option of a word that does not begin with a dash, unless -- stands before it.
func (t *Tools) named(name string, metadata map[string]string) ([]string, error) {
	line, ok := t.Commands[name]
	if !ok {
		return nil, fmt.Errorf("metadata cmd: there is no command @%s: there are %s", name, strings.Join(t.names(), ", "))
	}
	words, err := command.Words(line)
	if err != nil || len(words) == 0 || parameter.MatchString(words[0]) {
		return nil, fmt.Errorf("command @%s of this test runner is no command line: %w", name, errOr(err, "it names no program"))
	}
	used := make(map[string]bool)
	options := true
	for i, word := range words {
		words[i], err = fill(word, metadata, used)
		if err != nil {
			return nil, fmt.Errorf("metadata %w: command @%s has it", err, name)
		}
		if options && strings.HasPrefix(words[i], "-") && !strings.HasPrefix(word, "-") {
			return nil, fmt.Errorf("metadata arg for %s of command @%s: a value that begins with - would be an option", word, name)
		}
		options = options && word != "--"
	}
	for key := range metadata {
		if arg, ok := strings.CutPrefix(key, argPrefix); ok && !used[arg] {
			return nil, fmt.Errorf("metadata %s: command @%s has no such parameter", key, name)
		}
	}
	return words, nil
}

// fill replaces the parameters of a word.
func fill(word string, metadata map[string]string, used map[string]bool) (string, error) {
	var missing error
	filled := parameter.ReplaceAllStringFunc(word, func(match string) string {
		name := match[2 : len(match)-1]
		value, ok := metadata[argPrefix+name]
		switch used[name] = true; {
		case !ok:
			missing = fmt.Errorf("%s%s is required", argPrefix, name)
		case strings.ContainsRune(value, 0):
			missing = fmt.Errorf("%s%s has a zero byte", argPrefix, name)
		}
		return value
	})
	return filled, missing
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}
