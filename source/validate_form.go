package source

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/Masterminds/semver/v3"
)

// A form is what the text of a field must look like.
type form struct {
	*regexp.Regexp
	want string
}

var (
	digestForm = form{regexp.MustCompile(`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$`), "be ALGORITHM:HEX"}
	sha256Form = form{regexp.MustCompile(`^sha256:[a-f0-9]{64}$`), "be sha256: and 64 hexadecimal digits in lower case"}
	commitForm = form{regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`), "be the full id of a commit: 40 or 64 hexadecimal digits"}
	tagForm    = form{regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`), "be a tag: at most 128 letters, digits, '_', '.' and '-'"}
)

// unless returns an error unless text is empty or has the form f.
func unless(text string, f form) error {
	if text == "" || f.MatchString(text) {
		return nil
	}
	return fmt.Errorf("must %s, not %s", f.want, quote(text))
}

func present(text string) error {
	if text == "" {
		return errors.New("is required")
	}
	return printing(text)
}

func printing(text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("must not hold control characters")
	}
	return nil
}

func unsigned(d Duration) error {
	if d < 0 {
		return errors.New("must not be negative")
	}
	return nil
}

// generic returns the provider, which is generic by default.
func generic(provider string) string {
	if provider == "" {
		return "generic"
	}
	return provider
}

func oneOf(text string, allowed ...string) error {
	if text == "" || slices.Contains(allowed, text) {
		return nil
	}
	return fmt.Errorf("must be one of %s, not %s", strings.Join(allowed, ", "), quote(text))
}

// only refuses a field that is set with a provider it does not go with.
func only(set bool, provider string, with ...string) error {
	if !set || slices.Contains(with, provider) {
		return nil
	}
	return fmt.Errorf("goes with provider %s only, not with %s", strings.Join(with, " or "), quote(generic(provider)))
}

func exclusive(a, b bool, other string) error {
	if a && b {
		return fmt.Errorf("excludes %s: remove one of the two", other)
	}
	return nil
}

func expression(text string) error {
	if _, err := regexp.Compile(text); err != nil {
		return fmt.Errorf("must be a regular expression in Go syntax: %w", err)
	}
	return nil
}

func versionRange(text string) error {
	if text == "" {
		return nil
	}
	if _, err := semver.NewConstraint(text); err != nil {
		return fmt.Errorf("%s is no version range: write one such as >=1.2.0 <2.0.0", quote(text))
	}
	return nil
}

// address checks a URL without ever repeating it: it may hold credentials.
func address(text string, schemes ...string) error {
	if text == "" {
		return errors.New("is required")
	}
	scheme, _, found := strings.Cut(text, "://")
	if !found || !slices.Contains(schemes, scheme) {
		err := fmt.Errorf("must begin with %s://", strings.Join(schemes, ":// or "))
		if slices.Contains(schemes, "ssh") && !found && strings.Contains(text, ":") {
			return fmt.Errorf("%w: write git@HOST:PATH as ssh://git@HOST/PATH", err)
		}
		return err
	}
	if err := printing(text); err != nil {
		return err
	}
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
}

// onePart refuses a name that would be more, or less, than one part of a path.
func onePart(name string) error {
	if strings.ContainsAny(name, `/\?#%`) || name == "." || name == ".." {
		return errors.New("must be the name of a bucket alone: the beginning of keys goes into spec.prefix")
	}
	return nil
}

// bareOrigin refuses a URL of more than scheme, host and port.
func bareOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || strings.Trim(u.Path, "/") != "" || strings.ContainsAny(text, "?#") {
		return errors.New("must be SCHEME://HOST or SCHEME://HOST:PORT and no more: it stands for all repositories there")
	}
	return nil
}

var defaultPorts = map[string]string{"http": "80", "https": "443", "ssh": "22"}

// distinctOrigins refuses credentials of which some could never be used.
func distinctOrigins(all []GitSubmoduleCredential) error {
	seen := map[string]bool{}
	for i, c := range all {
		u, err := url.Parse(c.URL)
		if err != nil {
			continue // reported by itself
		}
		origin := u.Scheme + " " + strings.ToLower(u.Hostname()) + " " + cmp.Or(u.Port(), defaultPorts[u.Scheme])
		if seen[origin] {
			return fmt.Errorf("must name an origin once: entry %d repeats one before it", i)
		}
		seen[origin] = true
	}
	return nil
}

// untagged refuses a tag or digest at the end of an oci URL.
func untagged(text string) error {
	last := text[strings.LastIndexByte(text, '/')+1:]
	if strings.ContainsAny(last, ":@") && strings.Count(text, "/") > 2 {
		return errors.New("must not hold a tag or digest: put it into spec.ref")
	}
	return nil
}

// insidePath checks a slash-separated path inside a source. A leading slash
// stands for the root of the source, as the reference has it.
func insidePath(path string) error {
	depth := 0
	for _, part := range strings.Split(path, "/") {
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
	return printing(path)
}
