package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/headgate-io/headgate/source"
)

// accessFlags say how what a URL names is reached. Each stands for the field of
// a spec that an object would have.
type accessFlags struct {
	provider string
	endpoint string
	region   string
	secret   string
	cert     string
	proxy    string
	insecure bool
}

func (f *accessFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.provider, "provider", "", "`NAME` of who issues the credentials for a URL: azure, aws, gcp, or github with the app in the Secret called as the repository; generic for none with an s3:// URL")
	complete(c, "provider", "azure", "aws", "gcp", "github", "generic")
	fl.StringVar(&f.endpoint, "endpoint", "", "`HOST[:PORT]` of the server of an s3:// URL, or URL of that of a gs:// or azblob:// URL, as spec.endpoint")
	fl.StringVar(&f.region, "region", "", "`NAME` of the region of the bucket of an s3:// URL, as spec.region")
	fl.StringVar(&f.secret, "secret-ref", "", "`NAME` of the Secret with the credentials for a URL, as spec.secretRef")
	fl.StringVar(&f.cert, "cert-secret-ref", "", "`NAME` of the Secret with ca.crt, or tls.crt and tls.key, for the URL of a registry, bucket or repository of charts, as spec.certSecretRef")
	fl.StringVar(&f.proxy, "proxy-secret-ref", "", "`NAME` of the Secret with the address of the proxy to a URL, as spec.proxySecretRef")
	fl.BoolVar(&f.insecure, "insecure", false, "reach the server of the URL of a registry or bucket over http, as spec.insecure")
}

// An accessFlag is one of them.
type accessFlag struct {
	name, field string
	set         bool
	with        []string // schemes of the URLs that it goes with; empty for all
	hint        string   // what a Git URL has instead
}

func (f *accessFlags) list() []accessFlag {
	return []accessFlag{
		{"provider", "provider", f.provider != "", nil, ""},
		{"endpoint", "endpoint", f.endpoint != "", []string{"s3", "gs", "azblob"}, ""},
		{"region", "region", f.region != "", []string{"s3"}, ""},
		{"secret-ref", "secretRef", f.secret != "", nil, ""},
		{"cert-secret-ref", "certSecretRef", f.cert != "", []string{"oci", "s3", "gs", "azblob"}, ": ca.crt for a Git repository is in the Secret of --secret-ref"},
		{"proxy-secret-ref", "proxySecretRef", f.proxy != "", nil, ""},
		{"insecure", "insecure", f.insecure, []string{"oci", "s3", "gs", "azblob"}, ": the scheme of a Git repository says how it is reached"},
	}
}

// unused refuses the flags of a URL where there is none.
func (f *accessFlags) unused() error {
	for _, flag := range f.list() {
		if flag.set {
			return usage("--%s goes with a URL: set spec.%s of the objects", flag.name, flag.field)
		}
	}
	return nil
}

// fit refuses the flags that do not go with URLs of a scheme.
func (f *accessFlags) fit(scheme string) error {
	for _, flag := range f.list() {
		if !flag.set || len(flag.with) == 0 || slices.Contains(flag.with, scheme) {
			continue
		}
		hint := flag.hint
		if scheme == "oci" || stores[scheme].form != "" {
			hint = ""
		}
		return usage("--%s does not go with this URL, but with %s://%s", flag.name, strings.Join(flag.with, "://, "), hint)
	}
	return nil
}

// reference returns the reference to the Secret called name, nil for "".
func reference(name string) *source.LocalReference {
	if name == "" {
		return nil
	}
	return &source.LocalReference{Name: name}
}

// dockerDefault is the value of --docker-config without one.
const dockerDefault = "default"

func registerDocker(c *cobra.Command, config *string) {
	c.Flags().StringVar(config, "docker-config", "", "use the logins of docker where a spec names no credentials: those in =`FILE`, a config.json or its directory, and of the helper programs it names; without =FILE in $DOCKER_CONFIG or ~/.docker")
	c.Flags().Lookup("docker-config").NoOptDefVal = dockerDefault
}

// keychain returns the logins of docker that config, the value of
// --docker-config, asks for; nil when it asks for none.
func (p *program) keychain(config string) (source.KeychainFunc, error) {
	if config == "" {
		return nil, nil
	}
	file, err := p.dockerFile(config)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(file); err != nil {
		return nil, usage("--docker-config: %w", err)
	}
	// Nothing is ever put into the store, so none needs to be detected.
	store, err := credentials.NewStore(file, credentials.StoreOptions{})
	if err != nil {
		return nil, usage("--docker-config: %s: %w", file, err)
	}
	return func(ctx context.Context, host string) (source.Credential, error) {
		c, err := store.Get(ctx, credentials.ServerAddressFromRegistry(host))
		if err != nil {
			return source.Credential{}, fmt.Errorf("login of docker for %s in %s: %w", host, file, err)
		}
		return source.Credential{Username: c.Username, Password: c.Password, Token: c.AccessToken, Refresh: c.RefreshToken}, nil
	}, nil
}

// dockerFile returns the path of the configuration of docker. It is not looked
// for in the working directory: it names programs that are run.
func (p *program) dockerFile(config string) (string, error) {
	if config == dockerDefault {
		if config, _ = p.lookup("DOCKER_CONFIG"); config == "" {
			name := "HOME"
			if runtime.GOOS == "windows" {
				name = "USERPROFILE"
			}
			home, _ := p.lookup(name)
			if home == "" {
				return "", usage("--docker-config: neither DOCKER_CONFIG nor %s is set: write --docker-config=FILE", name)
			}
			config = filepath.Join(home, ".docker")
		}
	}
	if info, err := os.Stat(config); err == nil && info.IsDir() {
		return filepath.Join(config, "config.json"), nil
	}
	return config, nil
}

// exactly takes n arguments, and knows what --docker-config FILE leaves behind.
func (f *sourceFlags) exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n && f.docker == dockerDefault {
			return strayFile(len(args), n)
		}
		return arguments(n, n)(c, args)
	}
}

func strayFile(got, want int) error {
	return usage("%d arguments, want %d: if one is the file of --docker-config, write --docker-config=FILE", got, want)
}
