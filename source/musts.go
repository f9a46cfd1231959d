package source

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/internal/document"
)

type (
	musts    = []document.Requirement
	keywords = map[string]any // of JSON Schema
)

// withSchema requires a value that check accepts; schema expresses the same requirement.
func withSchema[T any](schema keywords, check func(T) error) document.Requirement {
	must := document.Check(check)
	must.Schema = schema
	return must
}

// goOnly requires a value that check accepts; no schema can express the requirement.
func goOnly[T any](check func(T) error) document.Requirement { return document.Check(check) }

// matching requires a text that matches a pattern, which must have the same meaning in Go and in
// JSON Schema. A %s in sentence, the error for other texts, stands for the text.
func matching(pattern, sentence string) document.Requirement {
	form := compiled(pattern)
	return withSchema(keywords{"pattern": pattern}, func(text string) error { return errorUnless(form().MatchString(text), sentence, text) })
}

// without requires a text without any match of a pattern; see [matching].
func without(pattern, sentence string) document.Requirement {
	form := compiled(pattern)
	return withSchema(keywords{"not": keywords{"pattern": pattern}}, func(text string) error { return errorUnless(!form().MatchString(text), sentence, text) })
}

// compiled returns a function that compiles a pattern on first use, because most programs need few
// of them.
func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func errorUnless(ok bool, sentence, text string) error {
	if ok {
		return nil
	}
	return errors.New(strings.Replace(sentence, "%s", quote(text), 1))
}

// form requires an empty text or one that matches.
func form(pattern, want string) document.Requirement {
	return matching("^$|"+pattern, "must "+want+", not %s")
}

// oneOf requires an empty text or one of the allowed texts.
func oneOf(allowed ...string) document.Requirement {
	return withSchema(keywords{"enum": append([]string{""}, allowed...)}, func(text string) error {
		if text == "" || slices.Contains(allowed, text) {
			return nil
		}
		return fmt.Errorf("must be one of %s, not %s", strings.Join(allowed, ", "), quote(text))
	})
}

// withAlternative allows a further text in oneOf, which [Default] replaces by an allowed one.
func withAlternative(must document.Requirement, text string) document.Requirement {
	must.Schema = keywords{"enum": append(must.Schema["enum"].([]string), text)}
	return must
}

// is holds if the field at a path has one of the texts; "" stands for a missing field.
func is(at string, texts ...string) document.Condition {
	return document.Condition{At: at, Is: texts}
}

// isSet holds if there is a field at a path.
func isSet(at string) document.Condition { return document.Condition{At: at} }

func not(c document.Condition) document.Condition {
	c.Not = !c.Not
	return c
}

// when restricts a requirement to objects for which the conditions hold.
func when(must document.Requirement, conditions ...document.Condition) document.Requirement {
	must.When = conditions
	return must
}

// require requires a value if the conditions hold.
func require(message string, conditions ...document.Condition) document.Requirement {
	return document.Requirement{When: conditions, Required: true, Message: message}
}

// refuse refuses a value if the conditions hold.
func refuse(message string, conditions ...document.Condition) document.Requirement {
	return document.Requirement{When: conditions, Refused: true, Message: message}
}

// only refuses a value unless the provider at a path is one of providers.
func only(at string, providers ...string) document.Requirement {
	must := refuse("requires provider "+strings.TrimSuffix(strings.Join(providers, " or "), " or "), not(is(at, providers...)))
	must.Check = func(object, _ reflect.Value) (err error) {
		for _, v := range document.At(object, at) {
			err = fmt.Errorf("%s, not %s", must.Message, quote(generic(v.String())))
		}
		return err
	}
	return must
}

// generic returns the provider, which is generic by default.
func generic(provider string) string { return cmp.Or(provider, "generic") }

// tokenService requires one of the token services that work with a provider of a bucket.
func tokenService(provider string, services ...string) document.Requirement {
	message := "must be " + strings.Join(services, " or ") + " with spec.provider " + provider
	must := withSchema(keywords{"enum": services}, func(text string) error {
		return errorUnless(slices.Contains(services, text), message+", not %s", text)
	})
	must.Message, must.When = message, []document.Condition{is("spec.provider", provider)}
	if provider == generic("") {
		must.When[0].Is = append(must.When[0].Is, "")
	}
	return must
}

// printablePattern matches texts without control characters.
const printablePattern = `^[^\x00-\x1f\x7f-\x9f]*$`

func checkPrintable(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("must not hold control characters")
	}
	return nil
}

func checkPresent(text string) error {
	if text == "" {
		return errors.New("is required")
	}
	return checkPrintable(text)
}

var (
	filled = withSchema(keywords{"minLength": 1, "pattern": printablePattern}, checkPresent)
	digest = form(`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$`, "be ALGORITHM:HEX")

	unsigned = withSchema(keywords{}, func(d Duration) error {
		if d < 0 {
			return errors.New("must not be negative")
		}
		return nil
	})

	expression = goOnly(func(text string) error {
		if _, err := regexp.Compile(text); err != nil {
			return fmt.Errorf("must be a regular expression in Go syntax: %w", err)
		}
		return nil
	})

	versionRange = goOnly(func(text string) error {
		if text == "" {
			return nil
		}
		_, err := semver.NewConstraint(text)
		return errorUnless(err == nil, "%s is no version range: write one such as >=1.2.0 <2.0.0", text)
	})

	bareOrigin = matching(`^[a-z]+://[^/?#@]+/*$`, "must be SCHEME://HOST or SCHEME://HOST:PORT and no more: it stands for all repositories there")

	objectName   = withSchema(keywords{"pattern": "^" + document.DNSName + "$", "maxLength": 253}, document.CheckName)
	optionalName = withSchema(keywords{"pattern": "^(" + document.DNSName + ")?$", "maxLength": 253}, func(name string) error {
		if name == "" {
			return nil
		}
		return document.CheckName(name)
	})
)

// scheme requires a URL with one of the schemes. The errors of scheme and address do not include
// the URL, because it may contain credentials.
func scheme(schemes ...string) document.Requirement {
	message := "must begin with " + strings.Join(schemes, ":// or ") + "://"
	must := withSchema(keywords{"pattern": "^(" + strings.Join(schemes, "|") + ")://"}, func(text string) error {
		before, _, found := strings.Cut(text, "://")
		switch {
		case text == "":
			return errors.New("is required")
		case found && slices.Contains(schemes, before):
			return nil
		case slices.Contains(schemes, "ssh") && !found && strings.Contains(text, ":"):
			return errors.New(message + ": write git@HOST:PATH as ssh://git@HOST/PATH")
		}
		return errors.New(message)
	})
	must.Message = message
	return must
}

// address requires a URL with one of the schemes and a host.
func address(schemes ...string) musts {
	return musts{scheme(schemes...), withSchema(keywords{"pattern": printablePattern}, checkPrintable), goOnly(func(text string) error {
		u, err := url.Parse(text)
		switch {
		case err != nil && strings.Contains(err.Error(), "invalid port"):
			return errors.New("has a port that is no number: separate host and path with '/', not ':'")
		case err != nil:
			return errors.New("is no URL")
		case u.Hostname() == "":
			return errors.New("must name a host")
		}
		return nil
	})}
}

var defaultPorts = map[string]string{"http": "80", "https": "443", "ssh": "22"}

// distinctOrigins refuses two credentials for one origin, because one of them could never be used.
func distinctOrigins(all []GitSubmoduleCredential) error {
	seen := map[string]bool{}
	for i, c := range all {
		u, err := url.Parse(c.URL)
		if err != nil {
			continue // another check reports it
		}
		origin := u.Scheme + " " + strings.ToLower(u.Hostname()) + " " + cmp.Or(u.Port(), defaultPorts[u.Scheme])
		if seen[origin] {
			return fmt.Errorf("must name an origin once: entry %d repeats one before it", i)
		}
		seen[origin] = true
	}
	return nil
}

// inside requires a path that [insidePath] accepts. A schema cannot count directories.
var inside = musts{{Schema: keywords{"not": keywords{"pattern": `\\`}, "pattern": printablePattern}}, goOnly(insidePath)}

// insidePath checks a slash-separated path inside a source. A leading slash means the root of the
// source, as in the reference implementation.
func insidePath(path string) error {
	depth := 0
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		if depth < 0 {
			return errors.New("must not lead out of the source")
		}
	}
	if strings.Contains(path, `\`) {
		return errors.New(`must use '/', not '\'`)
	}
	return checkPrintable(path)
}

// checkSparse checks an entry of spec.sparseCheckout.
func checkSparse(entry string) error {
	switch {
	case entry == "":
		return errors.New("must not be empty: write . for the whole repository, or remove it")
	case entry[0] == '/':
		return errors.New("must be relative to the root of the repository: remove the leading '/'")
	case slices.Contains(strings.Split(entry, "/"), ".."):
		return errors.New("must not lead out of a directory by '..'")
	case strings.Contains(entry, `\`):
		return errors.New(`must use '/', not '\'`)
	case !utf8.ValidString(entry):
		return errors.New("must be UTF-8 text")
	}
	return checkPrintable(entry)
}

// notInRef matches what git check-ref-format refuses anywhere in the name of a ref.
const notInRef = `\.\.|@\{|[ ~:?*\[\\\x00-\x1f\x7f]|^/|//|(^|/)\.|\.lock/`

// refName requires a full ref name; the suffix ^{} stands for the object that a tag points to.
var refName = without(notInRef+`|^@(\^\{\})?$|(\.|/|\.lock)(\^\{\})?$|^\^|\^($|[^{]|\{$|\{[^}]|\{\}.)`,
	"%s is no git ref name: write one such as refs/heads/main")

// refPart requires a branch or tag name.
func refPart(prefix string) document.Requirement {
	return without(notInRef+`|\^|^-|(\.|/|\.lock)$`, "%s is no name that git allows after "+prefix)
}
