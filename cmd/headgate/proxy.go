package main

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/headgate-io/headgate/internal/zone"
)

// proxyOf returns the proxy that the environment names for sources, nil for none.
// It is not asked about this machine and link, nor about metadata services.
func (p *program) proxyOf() (func(*http.Request) (*url.URL, error), error) {
	var c httpproxy.Config
	var err error
	if c.HTTPProxy, err = p.proxyIn("http_proxy", "HTTP_PROXY"); err != nil {
		return nil, err
	}
	if c.HTTPSProxy, err = p.proxyIn("https_proxy", "HTTPS_PROXY"); err != nil {
		return nil, err
	}
	var name string
	name, c.NoProxy = p.either("no_proxy", "NO_PROXY")
	for entry := range strings.SplitSeq(c.NoProxy, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(entry)); strings.Contains(entry, "/") && err != nil {
			return nil, usage("%s: an entry is none of a host, an address and a network as 10.0.0.0/8", name)
		}
	}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil, nil
	}
	_, method := p.either("REQUEST_METHOD")
	c.CGI = method != ""
	choose := c.ProxyFunc()
	return func(req *http.Request) (*url.URL, error) {
		if zone.OfHost(req.URL) == zone.Link {
			return nil, nil
		}
		return choose(req.URL)
	}, nil
}

// either returns the first of the variables that has a value.
func (p *program) either(names ...string) (name, value string) {
	for _, name := range names {
		if value, _ := p.lookup(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// proxyIn returns the URL of the proxy in one of the variables, "" for none. The
// error does not repeat the value, which may hold a password.
func (p *program) proxyIn(names ...string) (string, error) {
	name, text := p.either(names...)
	if text == "" {
		return "", nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return "", usage("%s: want the URL of a proxy, as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT", name)
	}
	return text, nil
}
