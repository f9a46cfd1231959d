package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
)

// sourceFlags say which sources a command works on and how they are fetched.
type sourceFlags struct {
	accessFlags
	chartFlags
	docker     string
	networks   []string
	files      []string
	store      string
	baseURL    string
	digest     string
	records    int           // superseded artifacts that stay
	recordsFor time.Duration // and how long
	from       []string
	secrets    string
	parallel   int
	timeout    time.Duration
	maxBytes   int64
	quiet      bool
	output     string
	asked      func() bool // whether -o was given
	formats    []string    // of output
}

func (f *sourceFlags) register(c *cobra.Command) {
	registerFiles(c, &f.files)
	f.registerFrom(c)
	f.registerParallel(c)
	f.registerAccess(c)
	f.registerOutput(c, "table", "wide", "json", "yaml", "name")
	c.ValidArgsFunction = completeObjects(&f.files)
}

// registerParallel adds the flags that bound the work of a command.
func (f *sourceFlags) registerParallel(c *cobra.Command) {
	c.Flags().IntVar(&f.parallel, "parallel", 4, "objects worked on at once")
	spanVar(c, &f.timeout, "timeout", 0, "bound of the whole command; each phase of an object is bounded by its spec.timeout as well")
}

// registerFrom adds the flag of what stands in for origins.
func (f *sourceFlags) registerFrom(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.from, "from", nil, "`URL=PATH` of a local Git repository or directory that stands in for the origin at URL, which is ENDPOINT/BUCKET for a bucket, or a repository of charts; repeatable")
}

// registerAccess adds the flags that say how origins are reached.
func (f *sourceFlags) registerAccess(c *cobra.Command) {
	registerSecrets(c, &f.secrets)
	f.accessFlags.register(c)
	registerDocker(c, &f.docker)
	f.registerNetworks(c)
}

// registerNetworks adds the flag of what servers may lead to.
func (f *sourceFlags) registerNetworks(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.networks, "allow-network", nil, "`HOST`, address or network (10.0.0.0/8) that servers may lead to, by redirects or in what they serve, though it is in a narrower network than theirs; never a metadata service; repeatable, and separated by commas")
}

// registerOutput adds the flags about what is printed; the format is one of formats.
func (f *sourceFlags) registerOutput(c *cobra.Command, formats ...string) {
	f.formats, f.asked = formats, func() bool { return c.Flags().Changed("output") }
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print errors, and the result only with -o")
	c.Flags().StringVarP(&f.output, "output", "o", "table", "what to print: "+either(formats))
	complete(c, "output", formats...)
}

// prints reports whether the command prints its result: -q silences it unless
// -o asks for it.
func (f *sourceFlags) prints() bool { return !f.quiet || f.asked() }

// either lists words in a sentence.
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// registerLimit adds the flag of commands that read what may be hostile.
func registerLimit(c *cobra.Command, most *int64) {
	bytesVar(c, most, "max-bytes", 0, -1, "most uncompressed `BYTES` of one source; 0 is the default of its kind, -1 no limit")
}

func registerFiles(c *cobra.Command, files *[]string) {
	c.Flags().StringArrayVarP(files, "filename", "f", nil, "`FILE`, directory or - (standard input) with objects and Secrets; repeatable")
}

func registerSecrets(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "secrets", "", "`DIR` of Secrets, as NAME/KEY or NAMESPACE/NAME/KEY; looked up after the documents, and before the variables HEADGATE_SECRET_NAME_KEY")
}

// defaultStore is where a store is when no flag says where.
const defaultStore = ".headgate"

func registerStore(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "store", defaultStore, "`DIR` of the artifacts and the status of each object")
}

// registerWriting adds the flags of commands that store artifacts.
func (f *sourceFlags) registerWriting(c *cobra.Command) {
	registerLimit(c, &f.maxBytes)
	registerStore(c, &f.store)
	c.Flags().StringVar(&f.baseURL, "base-url", "", "`URL` that the store is served at; default its file URL")
	f.registerDigest(c)
}

func (f *sourceFlags) registerDigest(c *cobra.Command) {
	c.Flags().StringVar(&f.digest, "digest", string(artifact.SHA256), "`ALGORITHM` of artifact digests: sha256, sha384, sha512 or blake3")
	complete(c, "digest", "sha256", "sha384", "sha512", "blake3")
}
