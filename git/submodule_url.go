package git

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxModuleURL bounds one URL in .gitmodules, in bytes.
const maxModuleURL = 4096

// moduleURL resolves text, a URL in .gitmodules of the repository at base. The result
// is an http, https or ssh URL without a password, query or fragment; only ssh keeps
// a user name, because other credentials come from Secrets. A URL that begins with ./
// or ../ is relative to base as in git-submodule(1); scp's user@host:path becomes
// ssh://user@host/path. Errors do not repeat text.
func moduleURL(base *url.URL, text string) (*url.URL, error) {
	if len(text) > maxModuleURL {
		return nil, fmt.Errorf("it has more than %d bytes", maxModuleURL)
	}
	if err := checkURLText(text); err != nil {
		return nil, err
	}
	u, err := absoluteURL(base, text)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{u.Host, u.Path, u.User.Username()} {
		if err := checkURLText(part); err != nil { // once the escapes are decoded
			return nil, err
		}
	}
	_, password := u.User.Password()
	if u.Scheme != "ssh" {
		u.User = nil
		if slices.ContainsFunc(strings.Split(u.Path, "/"), isDots) {
			u = u.JoinPath() // as git's HTTP library does; over ssh the server resolves them
		}
	}
	if password {
		return nil, errors.New("it holds a password, which every reader of the repository knows and which is not used: put it into a Secret, for spec.submoduleCredentials")
	}
	if err := checkRepositoryURL(u); err != nil {
		return nil, err
	}
	return u, nil
}

// checkRepositoryURL returns an error if u cannot be the address of a repository.
func checkRepositoryURL(u *url.URL) error {
	switch {
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("scheme %.20q: want http, https or ssh", u.Scheme)
	case u.Hostname() == "":
		return errors.New("it has no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("it has a query or a fragment")
	case strings.Trim(u.Path, "/") == "":
		return errors.New("it names no repository")
	}
	return nil
}

var schemes = []string{"http", "https", "ssh"}

func isDots(element string) bool { return element == "." || element == ".." }

// checkURLText returns an error for text that no proper URL holds and that programs may
// misread.
func checkURLText(text string) error {
	switch {
	case text == "":
		return nil
	case text[0] == '-':
		return errors.New("it begins with a dash, as an option does")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("it holds a control character")
	case strings.Contains(text, `\`):
		return errors.New(`it holds a backslash: use /`)
	}
	return nil
}

var (
	helperForm = regexp.MustCompile(`^[A-Za-z0-9+.-]*::`) // gitremote-helpers(7)
	scpForm    = regexp.MustCompile(`^(?:([^/:@]+)@)?([A-Za-z0-9][A-Za-z0-9_.-]+):(.+)$`)
)

// absoluteURL parses text in any of the forms that git accepts and returns an absolute
// URL.
func absoluteURL(base *url.URL, text string) (*url.URL, error) {
	switch {
	case text == "":
		return nil, errors.New("it is not set")
	case strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../"):
		return resolveRelative(base, text)
	case helperForm.MatchString(text):
		return nil, errors.New("it names a remote helper, which is a program and never run: want http, https or ssh")
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil {
			return nil, errors.New("it is no URL")
		}
		return u, nil
	}
	m := scpForm.FindStringSubmatch(text)
	switch {
	case m == nil:
		return nil, errors.New("it is a path, or written in an unusual way: want http, https or ssh, or ./ and ../ for what is relative to the URL of the repository above")
	case strings.Contains(m[3], "@"):
		return nil, errors.New("it holds an @ behind the colon, as if it were a password: write ssh://USER@HOST/PATH")
	}
	u := &url.URL{Scheme: "ssh", Host: m[2], Path: "/" + strings.TrimPrefix(m[3], "/")}
	if m[1] != "" {
		u.User = url.User(m[1])
	}
	return u, nil
}

// resolveRelative resolves a URL that begins with ./ or ../ as git does: it interprets only
// the leading elements, relative to the whole path of base. The result is always on
// the host of base.
func resolveRelative(base *url.URL, text string) (*url.URL, error) {
	at := strings.TrimSuffix(base.EscapedPath(), "/")
	for {
		if rest, ok := strings.CutPrefix(text, "./"); ok {
			text = rest
			continue
		}
		rest, ok := strings.CutPrefix(text, "../")
		if !ok {
			break
		}
		slash := strings.LastIndexByte(at, '/')
		if slash < 0 {
			return nil, errors.New("it leads above the host of the repository above: it has too many ../")
		}
		at, text = at[:slash], rest
	}
	ref, err := url.Parse("ssh://host" + at + "/" + strings.TrimSuffix(text, "/"))
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	ref.Scheme, ref.Host = base.Scheme, base.Host
	if base.User != nil {
		ref.User = url.User(base.User.Username())
	}
	return ref, nil
}
