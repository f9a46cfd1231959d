package lfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/git/internal/config"
	"github.com/headgate-io/headgate/internal/transport"
)

// maxConfig bounds .lfsconfig, in bytes.
const maxConfig = 64 << 10

// ConfiguredURL returns lfs.url of the file .lfsconfig at the top of tree, ""
// when there is none. Nothing else is read from there.
func ConfiguredURL(tree fs.FS) (string, error) {
	const name = ".lfsconfig"
	if info, err := fs.Stat(tree, name); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return "", nil
	}
	text, err := readLimited(tree, name, maxConfig)
	if err != nil {
		return "", err
	}
	value := ""
	for e, err := range config.Parse(text) {
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if e.Name() == "lfs.url" {
			value = e.Value
		}
	}
	return value, nil
}

// Discover returns the endpoint of the repository at u: what its .lfsconfig says,
// or else .git/info/lfs below u, over https for an ssh URL (git-lfs, "Server
// Discovery"). configured is followed to the origin of u, and to any other
// one over https without credentials.
func Discover(u *url.URL, configured string) (Endpoint, error) {
	if configured == "" {
		at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
		if u.Scheme == "ssh" {
			at.Scheme, at.Host = "https", u.Hostname()
			if strings.Contains(at.Host, ":") {
				at.Host = "[" + at.Host + "]"
			}
		}
		for _, p := range []*string{&at.Path, &at.RawPath} {
			if *p != "" {
				*p = strings.TrimSuffix(strings.TrimRight(*p, "/"), ".git") + ".git/info/lfs"
			}
		}
		return Endpoint{URL: &at, Auth: u.Scheme != "ssh"}, nil
	}
	at, err := url.Parse(configured)
	if err != nil || len(configured) > maxAddress {
		return Endpoint{}, fmt.Errorf("%w: lfs.url in .lfsconfig is no URL", ErrRefused)
	}
	at = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}
	own := transport.SameOrigin(u, at)
	if !own && at.Scheme != "https" {
		return Endpoint{}, fmt.Errorf("%w: lfs.url in .lfsconfig is %s://%s: it must be https, or have the scheme, host and port of the repository", ErrRefused, at.Scheme, at.Host)
	}
	if err := mayLead(u, at); err != nil {
		return Endpoint{}, fmt.Errorf("lfs.url in .lfsconfig: %w", err)
	}
	return Endpoint{URL: at, Auth: own}, nil
}

// Granted returns the endpoint that an answer of git-lfs-authenticate tells for
// the repository at u.
func Granted(u *url.URL, answer []byte, now time.Time) (Endpoint, error) {
	var g action
	if err := json.Unmarshal(answer, &g); err != nil {
		return Endpoint{}, fmt.Errorf("%w: git-lfs-authenticate: %s", ErrProtocol, clean(err.Error()))
	}
	at, err := Discover(u, "")
	if err != nil {
		return Endpoint{}, err
	}
	to, err := newEndpoint(u, g.Href, g.Header, false)
	switch {
	case g.Href == "":
	case err != nil:
		return Endpoint{}, fmt.Errorf("git-lfs-authenticate: %w", err)
	default:
		at.URL = to.URL
	}
	at.Header, at.Expires = g.Header, g.expires(now)
	return at, nil
}
