package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/zone"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	azurelogin "github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/github"
)

// origins returns the implementations of all origins, signature verifiers and
// logins. Sigstore's trust metadata is cached in the directory cache, or in
// memory if cache is "".
func (p *program) origins(cache string) headgate.Origins {
	if cache != "" {
		cache = filepath.Join(cache, "sigstore")
	}
	return headgate.Origins{
		Buckets:   map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect, "gcp": gcs.Connect, "azure": azure.Connect},
		Verifiers: map[string]oci.Technology{"cosign": cosign.New(cosign.Config{Cache: cache}), "notation": notation.New},
		Logins: map[string]source.LoginFunc{
			"aws":    (&aws.Provider{Lookup: p.lookupEnv}).Login,
			"azure":  (&azurelogin.Provider{Lookup: p.lookupEnv}).Login,
			"gcp":    (&gcp.Provider{Lookup: p.lookupEnv}).Login,
			"github": new(github.Provider).Login,
		},
	}
}

// sourceEnv checks the flags about access and returns the environment of the
// origins. It looks up Secrets in documents first; if documents is nil, env has
// no Secrets.
func (p *program) sourceEnv(f *sourceFlags, documents *source.Set) (env source.Env, err error) {
	env.Limits.Bytes = f.maxBytes
	env.Local = map[string]string{}
	for _, s := range f.from {
		i := strings.LastIndexByte(s, '=') // the query of a URL may hold "=", a path rarely does
		if i <= 0 || i == len(s)-1 {
			return env, usage("--from %q: want URL=PATH", s)
		}
		if env.Local[s[:i]], err = filepath.Abs(s[i+1:]); err != nil {
			return env, usage("--from %q: %w", s, err)
		}
	}
	if env.Proxy, err = p.proxyFromEnvironment(); err != nil {
		return env, err
	}
	if env.Networks, err = source.ParseNetworks(f.networks...); err != nil {
		return env, usage("--allow-network: %w", err)
	}
	if env.Keychain, err = p.keychain(f.docker); err == nil && documents != nil {
		env.Secrets, err = p.secretLookup(f.secrets, documents)
	}
	return env, err
}

// secretLookup returns a lookup of Secrets in documents, then in the directory of
// --secrets unless it is "", then in the environment.
func (p *program) secretLookup(dir string, documents *source.Set) (source.Secrets, error) {
	places := []source.Secrets{documents}
	if dir != "" {
		places = append(places, source.DirSecrets(dir))
	}
	return source.Chain(append(places, source.EnvSecrets(p.lookupEnv))...), checkDir("secrets", dir, "a directory of Secrets")
}

// checkDir returns a usage error unless dir is a directory or "".
func checkDir(flag, dir, want string) error {
	if dir != "" && !isDir(dir) {
		return usage("--%s %q: want %s", flag, dir, want)
	}
	return nil
}

// dockerDefault is the value of --docker-config if the flag is given without a
// value.
const dockerDefault = "default"

// keychain returns a lookup of the Docker logins in config, which is the value of
// --docker-config. It returns nil if config is "". It does not search the working
// directory, because the file names programs that are executed.
func (p *program) keychain(config string) (source.KeychainFunc, error) {
	if config == "" {
		return nil, nil
	}
	if config == dockerDefault {
		if config = p.getenv("DOCKER_CONFIG"); config == "" {
			name := "HOME"
			if runtime.GOOS == "windows" {
				name = "USERPROFILE"
			}
			homeDir := p.getenv(name)
			if homeDir == "" {
				return nil, usage("--docker-config: neither DOCKER_CONFIG nor %s is set: write --docker-config=FILE", name)
			}
			config = filepath.Join(homeDir, ".docker")
		}
	}
	if isDir(config) {
		config = filepath.Join(config, "config.json")
	}
	if _, err := os.Stat(config); err != nil {
		return nil, usage("--docker-config: %w: for a file write --docker-config=FILE", err)
	}
	store, err := credentials.NewStore(config, credentials.StoreOptions{}) // the store is only read
	if err != nil {
		return nil, usage("--docker-config: %s: %w", config, err)
	}
	return func(ctx context.Context, host string) (source.Credential, error) {
		c, err := store.Get(ctx, credentials.ServerAddressFromRegistry(host))
		if err != nil {
			return source.Credential{}, fmt.Errorf("login of docker for %s in %s: %w", host, config, err)
		}
		return source.Credential{Username: c.Username, Password: c.Password, Token: c.AccessToken, Refresh: c.RefreshToken}, nil
	}, nil
}

// proxyFromEnvironment returns the proxy that the environment configures for sources, or nil.
// Requests to this machine, to link-local addresses and to metadata services
// bypass it. Errors do not repeat values, which may hold a password.
func (p *program) proxyFromEnvironment() (func(*http.Request) (*url.URL, error), error) {
	first := func(name string) (string, string) { // the lower-case variable wins
		if p.getenv(name) == "" {
			name = strings.ToUpper(name)
		}
		return name, p.getenv(name)
	}
	var c httpproxy.Config
	for variable, proxy := range map[string]*string{"http_proxy": &c.HTTPProxy, "https_proxy": &c.HTTPSProxy} {
		name, text := first(variable)
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
			return nil, usage("%s: want the URL of a proxy, as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT", name)
		}
		*proxy = text
	}
	name, except := first("no_proxy")
	for entry := range strings.SplitSeq(except, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(entry)); strings.Contains(entry, "/") && err != nil {
			return nil, usage("%s: an entry is none of a host, an address and a network as 10.0.0.0/8", name)
		}
	}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil, nil
	}
	c.NoProxy = except
	c.CGI = p.getenv("REQUEST_METHOD") != ""
	choose := c.ProxyFunc()
	return func(req *http.Request) (*url.URL, error) {
		if zone.OfHost(req.URL) == zone.Link {
			return nil, nil
		}
		return choose(req.URL)
	}, nil
}
