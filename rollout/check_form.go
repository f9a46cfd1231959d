package rollout

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
)

// Bounds of what a manifest holds, in bytes and items.
const (
	maxItems     = 100 // of each list of an analysis
	maxName      = 253
	maxURL       = 8 << 10
	maxQuery     = 64 << 10
	maxMap       = 256 << 10 // of the keys and values of metadata or variables
	maxKeys      = 1000
	maxCondition = 4 << 10
)

func fewer(n int) error {
	if n > maxItems {
		return fmt.Errorf("has %d items: the limit is %d", n, maxItems)
	}
	return nil
}

func few[T any](items []T) error { return fewer(len(items)) }

// within checks that a number is from low to high.
func within(low, high int) func(int) error {
	return func(n int) error {
		switch {
		case n >= low && n <= high:
			return nil
		case high == math.MaxInt:
			return fmt.Errorf("is %d: it must not be negative", n)
		}
		return fmt.Errorf("is %d: it must be from %d to %d", n, low, high)
	}
}

func notNegative(d Duration) error {
	if d < 0 {
		return fmt.Errorf("is %s: it must not be negative", d)
	}
	return nil
}

// webURL says what is wrong with an http or https URL.
func webURL(text string) error {
	_, err := parseWebURL(text)
	return err
}

func optionalURL(text string) error {
	if text == "" {
		return nil
	}
	return webURL(text)
}

// parseWebURL returns an http or https URL, or what is wrong with it without a
// part of it: it may hold a password.
func parseWebURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return nil, fmt.Errorf("is longer than %d bytes", maxURL)
	case err != nil:
		return nil, errors.New("is no URL: write http://HOST/PATH or https://HOST/PATH")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host: write http://HOST/PATH or https://HOST/PATH")
	}
	return u, nil
}

func shortQuery(text string) error {
	if len(text) > maxQuery {
		return fmt.Errorf("is longer than %d KiB", maxQuery>>10)
	}
	return nil
}

// ownName says what is wrong with a name that people chose for an item.
func ownName(name string) error {
	switch {
	case name == "":
		return errors.New("is required")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	}
	return plain(name)
}

// plain complains about control characters.
func plain(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%s has control characters: remove them", document.Quote(text))
	}
	return nil
}

func optionalNamespace(name string) error {
	if name == "" {
		return nil
	}
	return document.CheckNamespace(name)
}

// oneOf checks that a word is one of words; an empty one is the default.
func oneOf[T ~string](words ...T) func(T) error {
	return func(word T) error {
		if slices.Contains(words, word) {
			return nil
		}
		var names []string
		for _, w := range words {
			if w != "" {
				names = append(names, string(w))
			}
		}
		return fmt.Errorf("%s is none of %s", document.Quote(string(word)), strings.Join(names, ", "))
	}
}

// smallMap bounds metadata and variables.
func smallMap(m map[string]string) error {
	size := 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	switch {
	case len(m) > maxKeys:
		return fmt.Errorf("has %d keys: the limit is %d", len(m), maxKeys)
	case size > maxMap:
		return fmt.Errorf("has %d bytes of keys and values: the limit is %d KiB", size, maxMap>>10)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := plain(key); err != nil {
			return fmt.Errorf("the key %w", err)
		}
	}
	return nil
}

func fewHeaders(m map[string]StringMatch) error { return fewer(len(m)) }

func someHeaders(m map[string]StringMatch) error {
	if len(m) == 0 {
		return errors.New("is missing, so that every request would match: name a header and its value")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if err := condition(name, m[name]); err != nil {
			return err
		}
	}
	return nil
}

// headerForm is that of names of headers (RFC 9110, token), which have at most maxName bytes.
var headerForm = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// condition says what is wrong with the condition on a header.
func condition(name string, m StringMatch) error {
	texts := slices.DeleteFunc([]string{m.Exact, m.Prefix, m.Suffix, m.Regex}, func(text string) bool { return text == "" })
	defect := (*syntax.Error)(nil)
	_, err := syntax.Parse(m.Regex, syntax.Perl) // compiling may take long
	switch {
	case len(name) > maxName || !headerForm.MatchString(name):
		return fmt.Errorf("has %s, which is no name of a header", document.Quote(name))
	case len(texts) != 1:
		return fmt.Errorf("needs one of exact, prefix, suffix and regex for %s, and has %d", name, len(texts))
	case len(texts[0]) > maxCondition:
		return fmt.Errorf("has a condition on %s that is longer than %d KiB", name, maxCondition>>10)
	case errors.As(err, &defect):
		return fmt.Errorf("has a regex for %s that does not compile: %s", name, defect.Code)
	}
	return nil
}
