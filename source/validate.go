package source

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// Validate checks an object against the admission rules of an API server (reference, section 0) and
// against rules without which an object cannot work: expressions must compile, and git or a
// registry must accept names. The error joins one *DocumentError for each defect. Validate changes
// nothing; call [Default] first for an object made in Go.
func Validate(obj Object) error {
	return errors.Join(check(obj).ErrorsFor(obj.Head().String())...)
}

// check returns the defects of obj.
func check(obj Object) *document.Findings {
	found := new(document.Findings)
	checkMetadata(&obj.Head().Metadata, found)
	if k := objectKind(obj); k != nil {
		for _, facts := range tables[k.name] {
			rules := new(document.Findings)
			rules.Examine(obj, facts)
			found.Adopt(rules)
		}
	}
	return found
}

const maxAnnotations = 256 << 10 // bytes of all keys and values

func checkMetadata(m *Metadata, found *document.Findings) {
	if m.Name == "" && m.GenerateName != "" {
		found.Add("metadata.name", "is required: generateName needs an API server")
	} else {
		found.Check("metadata.name", document.CheckName(m.Name))
	}
	found.Check("metadata.namespace", document.CheckNamespace(m.namespace()))
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		field, v := "metadata.labels["+key+"]", m.Labels[key]
		if err := checkKey(key); err != nil {
			found.Check(field, err)
		} else if !labelForm().MatchString(v) {
			found.Add(field, "%s is no label value: write at most 63 letters, digits, '-', '_' and '.'", quote(v))
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		size += len(key) + len(m.Annotations[key])
		found.Check("metadata.annotations["+key+"]", checkKey(strings.ToLower(key)))
	}
	found.AddIf(size > maxAnnotations, "metadata.annotations", "must hold at most %d KiB", maxAnnotations>>10)
}

// qualified is the pattern of labels, and of the names of labels and annotations.
const qualified = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`

const (
	labelPattern = "^(" + qualified + ")?$"
	keyPattern   = "^((" + document.DNSName + ")/)?" + qualified + "$"
)

var labelForm, keyForm = compiled(labelPattern), compiled(keyPattern)

// checkKey checks a key of labels or annotations: [PREFIX/]NAME.
func checkKey(key string) error {
	if prefix, _, _ := strings.Cut(key, "/"); len(prefix) > 253 || !keyForm().MatchString(key) {
		return errors.New("the key must be [PREFIX/]NAME: a DNS name, and at most 63 letters, digits, '-', '_' and '.'")
	}
	return nil
}

// metadataFacts express the checks of checkMetadata for schemas.
var metadataFacts = []document.Fact{
	{At: "metadata.name", Must: musts{{Required: true}, {Schema: objectName.Schema}}},
	{At: "metadata.namespace", Must: musts{{Schema: keywords{"pattern": "^(" + document.DNSLabel + ")?$", "maxLength": 63}}}},
	{At: "metadata.labels", Must: musts{{Schema: keywords{"propertyNames": keywords{"pattern": keyPattern}}}}},
	{At: "metadata.labels[]", Must: musts{{Schema: keywords{"pattern": labelPattern}}}},
	{At: "metadata.annotations", Must: musts{{Schema: keywords{"propertyNames": keywords{"pattern": strings.ReplaceAll(keyPattern, "[a-z0-9]", "[A-Za-z0-9]")}}}}},
}

// Warnings returns warnings about valid but probably unintended parts of an object: fields that
// have no effect, that conflict or that disclose credentials. Each is a *DocumentError.
func Warnings(obj Object) []error {
	var found document.Findings
	advise(obj, &found)
	return found.ErrorsFor(obj.Head().String())
}

func advise(obj Object, found *document.Findings) {
	head := obj.Head()
	found.AddIf(head.Version() == V1Beta2, "apiVersion", "v1beta2 is no longer served by clusters: convert the object to %s/v1", head.Group())
	a, ok := obj.(interface{ advise(*document.Findings) })
	if !ok {
		return
	}
	interval := obj.Interval()
	found.AddIf(interval == 0, "spec.interval", "0s: the origin is not checked again until the object changes")
	found.AddIf(interval > 0 && interval < shortInterval, "spec.interval", "%s asks the origin more often than every %s", interval, shortInterval)
	a.advise(found)
}

const shortInterval = 5 * time.Second

// adviseChoice warns about the fields of spec.ref, given as NAME, VALUE, …, that have no effect
// because an earlier one is set.
func adviseChoice(found *document.Findings, choices ...string) {
	wins := ""
	for i := 0; i < len(choices); i += 2 {
		found.AddIf(choices[i+1] != "" && wins != "", "spec.ref."+choices[i], "has no effect: %s wins", wins)
		if choices[i+1] != "" {
			wins = cmp.Or(wins, choices[i])
		}
	}
}

// adviseURL warns about credentials in a URL and about credentials sent unencrypted.
func adviseURL(found *document.Findings, text string, insecure bool, secret *LocalReference) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	_, password := u.User.Password()
	found.AddIf(password, "spec.url", "holds a password, which anyone who reads the object sees: use secretRef")
	found.AddIf((insecure || u.Scheme == "http") && (secret != nil || u.User != nil), "spec.url", "sends credentials in the clear: use TLS")
}

// adviseIgnore warns about an ignore list without a pattern.
func adviseIgnore(found *document.Findings, ignore *string) {
	if ignore == nil {
		return
	}
	for line := range strings.Lines(*ignore) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return
		}
	}
	found.Add("spec.ignore", "holds no pattern, so that the default patterns still apply: to disable them write !*")
}

func (g *GitRepository) advise(found *document.Findings) {
	adviseURL(found, g.Spec.URL, false, g.Spec.SecretRef)
	adviseIgnore(found, g.Spec.Ignore)
	ref := g.Spec.Ref
	if ref == nil {
		return
	}
	branch := ref.Branch
	if ref.Commit != "" && ref.Name+ref.SemVer+ref.Tag == "" {
		branch = "" // the branch must contain the commit
	}
	adviseChoice(found, "commit", ref.Commit, "name", ref.Name, "semver", ref.SemVer, "tag", ref.Tag, "branch", branch)
	found.AddIf(ref.Commit+ref.Name == "" && ref.SemVer != "" && ref.Tag != "", "spec.ref", "the reference implementation lets tag win over semver: remove one of the two")
}

func (b *Bucket) advise(found *document.Findings) {
	b.Spec.adviseEndpoint(found)
	if p := generic(b.Spec.Provider); b.Spec.Region != "" && (p == "gcp" || p == "azure") {
		found.Add("spec.region", "has no effect with provider %s", p)
	}
	found.AddIf(strings.HasPrefix(b.Spec.Prefix, "/"), "spec.prefix", "begins with a slash, as keys hardly ever do: leave it out")
	if b.Spec.STS == nil {
		return
	}
	found.AddIf(b.Spec.SecretRef != nil, "spec.sts", "has no effect: the keys of secretRef are used")
	found.AddIf(strings.HasPrefix(b.Spec.STS.Endpoint, "http://"), "spec.sts.endpoint", "sends credentials in the clear: use TLS")
}

// adviseEndpoint warns about credentials in the endpoint and about unencrypted data.
func (s *BucketSpec) adviseEndpoint(found *document.Findings) {
	u, err := s.endpoint()
	if err != nil {
		return
	}
	found.AddIf(u.RawQuery != "", "spec.endpoint", "holds a signature, which anyone who reads the object sees: use sasKey of secretRef")
	found.AddIf(s.Insecure && u.Scheme == "https", "spec.insecure", "has no effect: the endpoint begins with https://")
	found.AddIf(s.Insecure && u.Scheme == "http" && (s.SecretRef != nil || u.RawQuery != ""), "spec.insecure", "sends what the bucket holds in the clear")
}

func (o *OCIRepository) advise(found *document.Findings) {
	adviseURL(found, o.Spec.URL, o.Spec.Insecure, o.Spec.SecretRef)
	if o.Spec.LayerSelector.selection().Operation == LayerExtract {
		adviseIgnore(found, o.Spec.Ignore)
	} else if o.Spec.Ignore != nil {
		found.Add("spec.ignore", "has no effect with layerSelector.operation copy")
	}
	o.Spec.Verify.advise(found)
	if ref := o.Spec.Ref; ref != nil {
		adviseChoice(found, "digest", ref.Digest, "semver", ref.SemVer, "tag", ref.Tag)
		found.AddIf(ref.SemVerFilter != "" && ref.SemVer == "", "spec.ref.semverFilter", "has no effect without semver")
	}
}

func (v *OCIRepositoryVerification) advise(found *document.Findings) {
	if v == nil || v.SecretRef == nil || v.provider() != "cosign" {
		return
	}
	found.AddIf(len(v.MatchOIDCIdentity) > 0, "spec.verify.matchOIDCIdentity", "has no effect: the keys of secretRef decide")
	found.AddIf(v.TrustedRootSecretRef != nil, "spec.verify.trustedRootSecretRef", "has no effect: the keys of secretRef decide")
}

func (p *PkgRepository) advise(found *document.Findings) {
	adviseURL(found, p.Spec.URL, p.Spec.Type == RepositoryOCI && p.Spec.Insecure, p.Spec.SecretRef)
	found.AddIf(p.Spec.AccessFrom != nil, "spec.accessFrom", accessNote)
	if p.Spec.Type == RepositoryOCI {
		found.AddIf(p.Spec.PassCredentials, "spec.passCredentials", "has no effect: it requires type default")
		return
	}
	found.AddIf(p.Spec.PassCredentials && p.Spec.SecretRef == nil && !strings.Contains(p.Spec.URL, "@"), "spec.passCredentials", "has no effect without secretRef")
	found.AddIf(p.Spec.Insecure, "spec.insecure", "has no effect: it requires type oci")
	found.AddIf(generic(p.Spec.Provider) != "generic", "spec.provider", "has no effect: it requires type oci")
	found.AddIf(strings.HasPrefix(p.Spec.URL, "oci://"), "spec.type", "must be oci for this URL to work")
}

func (c *PkgChart) advise(found *document.Findings) {
	c.Spec.Verify.advise(found)
	found.AddIf(c.Spec.inTree() && c.Spec.Version != "" && c.Spec.Version != "*", "spec.version", "has no effect with a chart from a %s", c.kindOf(c.Spec.SourceRef.Kind))
	found.AddIf(c.Spec.IgnoreMissingValuesFiles && len(c.Spec.ValuesFiles) == 0, "spec.ignoreMissingValuesFiles", "has no effect without valuesFiles")
}
