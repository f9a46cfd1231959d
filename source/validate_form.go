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

	"github.com/headgate-io/headgate/internal/document"
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

// formed checks that a text is empty or has a form.
func formed(f form) func(string) error {
	return func(text string) error {
		if text == "" || f.MatchString(text) {
			return nil
		}
		return fmt.Errorf("must %s, not %s", f.want, quote(text))
	}
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
func generic(provider string) string { return cmp.Or(provider, "generic") }

// oneOf checks that a text is empty or one of those that are allowed.
func oneOf(allowed ...string) func(string) error {
	return func(text string) error {
		if text == "" || slices.Contains(allowed, text) {
			return nil
		}
		return fmt.Errorf("must be one of %s, not %s", strings.Join(allowed, ", "), quote(text))
	}
}

// only refuses a field that is set with a provider it does not go with.
func only(set bool, provider string, with ...string) error {
	if !set || slices.Contains(with, provider) {
		return nil
	}
	return fmt.Errorf("goes with provider %s only, not with %s", strings.Join(with, " or "), quote(generic(provider)))
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
func address(schemes ...string) func(string) error {
	return func(text string) error {
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

// objectName checks the name of an object.
func objectName(name string) error { return document.CheckName(name) }

func optionalName(name string) error {
	if name == "" {
		return nil
	}
	return objectName(name)
}

// qualifiedForm is that of labels of object metadata, of at most 63 bytes.
var qualifiedForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

func qualified(text string) bool { return len(text) <= 63 && qualifiedForm.MatchString(text) }

// qualifiedKey checks a key of labels or annotations: [PREFIX/]NAME.
func qualifiedKey(key string) error {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		name = key
	}
	if found && !document.Subdomain(prefix) || !qualified(name) {
		return errors.New("the key must be [PREFIX/]NAME: a DNS name, and at most 63 letters, digits, '-', '_' and '.'")
	}
	return nil
}

// refName checks a full ref name; ^{} after it asks for what a tag points to.
func refName(name string) error {
	if name == "" || validRef(strings.TrimSuffix(name, "^{}")) {
		return nil
	}
	return fmt.Errorf("%s is no git ref name: write one such as refs/heads/main", quote(name))
}

// refPart checks a branch or tag.
func refPart(prefix string) func(string) error {
	return func(name string) error {
		if name == "" || name[0] != '-' && validRef(prefix+name) {
			return nil
		}
		return fmt.Errorf("%s is no name that git allows after %s", quote(name), prefix)
	}
}

func isASCIIControl(r rune) bool { return r < ' ' || r == 0x7f }

// validRef applies the rules of git check-ref-format.
func validRef(name string) bool {
	if name == "@" || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.ContainsAny(name, ` ~^:?*[\`) || strings.ContainsFunc(name, isASCIIControl) {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
