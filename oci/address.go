package oci

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// An address is where a repository is.
type address struct {
	host string // HOST[:PORT], what credentials are kept under
	path string
}

const (
	maxAddress = 2048 // bytes of a URL
	maxPath    = 255  // bytes of the path, as in the reference implementation of registries
)

// Docker Hub goes by several names, and serves under one.
const (
	hub       = "docker.io"
	hubServer = "registry-1.docker.io"
)

var hubNames = map[string]bool{hub: true, "index.docker.io": true, hubServer: true}

var (
	// The name of a repository (distribution specification 1.1, "Pulling manifests").
	pathForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]*$`)
	nameForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?)*$`)
)

// isTag reports whether a text has the form of a tag, which has at most 128 bytes.
func isTag(text string) bool { return len(text) <= 128 && tagForm.MatchString(text) }

// CheckURL returns what is wrong with the URL of a repository, see [Access].
func CheckURL(url string) error {
	_, err := parseAddress(url)
	return err
}

// parseAddress reads oci://HOST[:PORT]/PATH. Docker Hub is called docker.io,
// and its repositories without a slash are those of library.
func parseAddress(s string) (address, error) {
	if len(s) > maxAddress {
		return address{}, fmt.Errorf("it has %d bytes, at most %d are allowed", len(s), maxAddress)
	}
	rest, ok := strings.CutPrefix(s, "oci://")
	if !ok {
		return address{}, errors.New("it should read oci://HOST/PATH")
	}
	host, path, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(host, "@"):
		return address{}, errors.New("it holds a user name: put credentials into a Secret, and name that in spec.secretRef")
	case strings.ToLower(rest) != rest:
		return address{}, errors.New("it has upper case letters, which names of repositories cannot have: write it in lower case")
	case strings.ContainsAny(path, ":@"):
		return address{}, errors.New("it holds a tag or digest: put that into spec.ref")
	}
	if err := checkHost(host); err != nil {
		return address{}, err
	}
	if hubNames[host] {
		host = hub
		if !strings.Contains(path, "/") {
			path = "library/" + path
		}
	}
	if len(path) > maxPath || !pathForm.MatchString(path) {
		return address{}, fmt.Errorf("%q is no name of a repository: lower case letters and digits, single . _ - between them, / between the parts, at most %d bytes", path, maxPath)
	}
	return address{host, path}, nil
}

// checkHost accepts a host name, an IPv4 address or an IPv6 address in
// brackets, with or without a port.
func checkHost(host string) error {
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host {
		return fmt.Errorf("%q is no host", host)
	}
	name := u.Hostname()
	if strings.HasPrefix(host, "[") {
		if ip, err := netip.ParseAddr(name); err != nil || !ip.Is6() || ip.Zone() != "" {
			return fmt.Errorf("%q is no IPv6 address", name)
		}
	} else if len(name) > 253 || !nameForm.MatchString(name) {
		return fmt.Errorf("%q is no host", host)
	}
	if strings.HasSuffix(host, ":") {
		return fmt.Errorf("%q has no port behind its colon", host)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q is no port", port)
		}
	}
	return nil
}

// origin returns the URL of the registry's root.
func (a address) origin(insecure bool) *url.URL {
	u := &url.URL{Scheme: "https", Host: a.host, Path: "/"}
	if a.host == hub {
		u.Host = hubServer
	}
	if insecure {
		u.Scheme = "http"
	}
	return u
}

func (a address) String() string { return a.host + "/" + a.path }
