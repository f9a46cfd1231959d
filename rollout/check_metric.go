package rollout

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
)

// Bounds of what a manifest holds, in bytes.
const (
	maxName  = 253
	maxQuery = 64 << 10
	maxMap   = 256 << 10 // of the keys and values of metadata or variables
	maxKeys  = 1000

	maxCondition = 4 << 10
)

var matchRequirements = []requirement[*Match]{
	{invalid, "headers", func(_ *Canary, m *Match) complaint { return few(len(m.Headers)) }},
	{broken, "headers", func(_ *Canary, m *Match) complaint {
		if len(m.Headers) == 0 {
			return "is missing, so that every request would match: name a header and its value"
		}
		return ""
	}},
	{broken, "headers", func(_ *Canary, m *Match) complaint {
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			if text := conditions(name, m.Headers[name]); text != "" {
				return text
			}
		}
		return ""
	}},
}

// headerForm is that of names of headers (RFC 9110, token), which have at most maxHeader bytes.
var headerForm = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

const maxHeader = 253

// conditions says what is wrong with the condition on a header.
func conditions(name string, m StringMatch) complaint {
	count := 0
	for _, text := range []string{m.Exact, m.Prefix, m.Suffix, m.Regex} {
		if text != "" {
			count++
		}
	}
	defect := (*syntax.Error)(nil)
	_, err := syntax.Parse(m.Regex, syntax.Perl) // compiling may take long
	switch {
	case len(name) > maxHeader || !headerForm.MatchString(name):
		return complain("has %s, which is no name of a header", document.Quote(name))
	case count != 1:
		return complain("needs one of exact, prefix, suffix and regex for %s, and has %d", name, count)
	case len(m.Exact+m.Prefix+m.Suffix+m.Regex) > maxCondition:
		return complain("has a condition on %s that is longer than %d KiB", name, maxCondition>>10)
	case errors.As(err, &defect):
		return complain("has a regex for %s that does not compile: %s", name, defect.Code)
	}
	return ""
}

var metricRequirements = []requirement[*Metric]{
	{invalid, "name", func(_ *Canary, m *Metric) complaint { return ownName(m.Name) }},
	{invalid, "query", func(_ *Canary, m *Metric) complaint {
		if len(m.Query) > maxQuery {
			return complain("is longer than %d KiB", maxQuery>>10)
		}
		return ""
	}},
	{invalid, "templateRef.name", func(_ *Canary, m *Metric) complaint { return refName(m.TemplateRef) }},
	{invalid, "templateRef.namespace", func(_ *Canary, m *Metric) complaint { return refNamespace(m.TemplateRef) }},
	{invalid, "templateVariables", func(_ *Canary, m *Metric) complaint { return smallMap(m.TemplateVariables) }},
	{invalid, "noValues", func(_ *Canary, m *Metric) complaint {
		return oneOf(m.NoValues, "", NoValuesFail, NoValuesPass, NoValuesInconclusive)
	}},

	{broken, "interval", func(_ *Canary, m *Metric) complaint { return notNegative(m.Interval) }},
	{broken, "", func(_ *Canary, m *Metric) complaint {
		if m.Query == "" && m.TemplateRef == nil && !m.Builtin() {
			return complain("has no query and no templateRef, and is neither %s nor %s: add one", SuccessRate, RequestDuration)
		}
		return ""
	}},
	{broken, "thresholdRange", func(_ *Canary, m *Metric) complaint {
		if m.ThresholdRange == nil && m.Threshold == nil {
			return "is missing, so that every value would pass: set min, max or both"
		}
		return ""
	}},
	{broken, "thresholdRange", func(_ *Canary, m *Metric) complaint {
		r := cmp.Or(m.ThresholdRange, new(Range))
		switch {
		case r.Min != nil && math.IsNaN(*r.Min) || r.Max != nil && math.IsNaN(*r.Max):
			return "has a bound that is no number"
		case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
			return complain("has min %v above max %v, so that no value passes", *r.Min, *r.Max)
		case m.ThresholdRange != nil && r.Min == nil && r.Max == nil:
			return "is empty, so that every value would pass: set min, max or both"
		}
		return ""
	}},
	{broken, "threshold", func(_ *Canary, m *Metric) complaint {
		if m.Threshold != nil && math.IsNaN(*m.Threshold) {
			return "is no number"
		}
		return ""
	}},

	{advice, "threshold", func(_ *Canary, m *Metric) complaint {
		if m.Threshold != nil && m.ThresholdRange != nil {
			return "has no effect: thresholdRange is set"
		}
		return ""
	}},
	{advice, "query", func(_ *Canary, m *Metric) complaint {
		if m.Query != "" && m.TemplateRef != nil {
			return "has no effect: templateRef is set"
		}
		return ""
	}},
	{advice, "templateVariables", func(_ *Canary, m *Metric) complaint {
		if len(m.TemplateVariables) > 0 && m.TemplateRef == nil && m.Query == "" {
			return "has no effect: there is no query and no templateRef"
		}
		return ""
	}},
}

var alertRequirements = []requirement[*Alert]{
	{invalid, "name", func(_ *Canary, a *Alert) complaint { return ownName(a.Name) }},
	{invalid, "providerRef.name", func(_ *Canary, a *Alert) complaint { return refName(&a.ProviderRef) }},
	{invalid, "providerRef.namespace", func(_ *Canary, a *Alert) complaint { return refNamespace(&a.ProviderRef) }},
	{broken, "severity", func(_ *Canary, a *Alert) complaint { return oneOf(a.Severity, "", Info, Warn, Error) }},
}

// ownName says what is wrong with a name that people chose for an item.
func ownName(name string) complaint {
	switch {
	case name == "":
		return "is required"
	case len(name) > maxName:
		return complain("is longer than %d bytes", maxName)
	}
	return plain(name)
}

// plain complains about control characters.
func plain(text string) complaint {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return complain("%s has control characters: remove them", document.Quote(text))
	}
	return ""
}

func refName(ref *ObjectRef) complaint {
	if ref == nil {
		return ""
	}
	return of(document.CheckName(ref.Name))
}

func refNamespace(ref *ObjectRef) complaint {
	if ref == nil || ref.Namespace == "" {
		return ""
	}
	return of(document.CheckNamespace(ref.Namespace))
}

// oneOf complains about a word that is none of words; an empty one is the default.
func oneOf[T ~string](word T, words ...T) complaint {
	if slices.Contains(words, word) {
		return ""
	}
	var names []string
	for _, w := range words {
		if w != "" {
			names = append(names, string(w))
		}
	}
	return complain("%s is none of %s", document.Quote(string(word)), strings.Join(names, ", "))
}

// smallMap bounds metadata and variables.
func smallMap(m map[string]string) complaint {
	size := 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	switch {
	case len(m) > maxKeys:
		return complain("has %d keys: the limit is %d", len(m), maxKeys)
	case size > maxMap:
		return complain("has %d bytes of keys and values: the limit is %d KiB", size, maxMap>>10)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if text := plain(key); text != "" {
			return "the key " + text
		}
	}
	return ""
}
