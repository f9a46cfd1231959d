// Package aws logs in to CodeCommit (reference A9).
//
// The identity is that of the program. In a job of GitHub or Forgejo Actions
// with AWS_ROLE_ARN, and without AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE
// and AWS_PROFILE, it is that role, assumed with the job's identity token for
// the audience sts.amazonaws.com. Otherwise it is what the chain of the AWS SDK
// finds: variables of the environment, a web identity, the shared files with
// their profiles, the container's role, the instance's. A profile with
// credential_process makes the SDK run that program.
//
//   - The URL must be https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME,
//     with -fips after codecommit or .cn at the end where AWS has that. No other
//     host is shown anything.
//   - User name and password are made anew for each use: the password is a
//     signature over host and path (its format is in sign.go) that is good for 15 minutes.
//     What is asked later in the same conversation is refused.
//   - Temporary keys are used for 80 % of their life, an hour at most.
package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headgate-io/headgate/login/internal/exchange"
	"github.com/headgate-io/headgate/login/internal/keep"
	"github.com/headgate-io/headgate/source"
)

// A Provider logs in with the identity of the program, and keeps temporary keys.
type Provider struct {
	now  func() time.Time
	env  exchange.Environment
	keys keep.Keep[aws.Credentials]
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv]. The SDK
// reads the environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	if now == nil {
		now = time.Now
	}
	return &Provider{now: now, env: exchange.NewEnvironment(lookup), keys: keep.Keep[aws.Credentials]{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	region, err := regionOf(r.URL)
	if err != nil {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.url: %w", source.ErrInvalid, source.ErrProvider, err)
	}
	if err := exchange.Own(r); err != nil {
		return source.Credential{}, err
	}
	client := exchange.Client(r.Client)
	defer client.CloseIdleConnections()
	keys, forget, err := p.keys.Get(ctx, region, func(ctx context.Context) (aws.Credentials, time.Time, error) {
		return p.identify(ctx, exchange.Until(ctx, client), region)
	})
	if err != nil {
		return source.Credential{}, err
	}
	now := p.now()
	c := sign(keys, r.URL, region, now)
	if c.Expires = now.Add(validity); keys.CanExpire && keys.Expires.Before(c.Expires) {
		c.Expires = keys.Expires
	}
	c.Refused = forget
	return c, nil
}

// identify gets keys from wherever the program has its identity from.
func (p *Provider) identify(ctx context.Context, client *http.Client, region string) (aws.Credentials, time.Time, error) {
	keys, err := p.retrieve(ctx, client, region)
	if err != nil {
		return keys, time.Time{}, p.explain(ctx, err)
	}
	if keys.AccessKeyID == "" || keys.SecretAccessKey == "" || strings.ContainsFunc(keys.AccessKeyID+keys.SessionToken, unprintable) {
		return keys, time.Time{}, errors.New("the keys that were found cannot be used: they are empty or hold control characters")
	}
	if !keys.CanExpire {
		return keys, time.Time{}, nil
	}
	return keys, keys.Expires, nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// hostForm matches the hosts of CodeCommit, from their first to their last byte.
var hostForm = regexp.MustCompile(`^git-codecommit(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})\.amazonaws\.com(\.cn)?$`)

// regionOf returns the region of the repository at u.
func regionOf(u *url.URL) (string, error) {
	m := hostForm.FindStringSubmatch(strings.ToLower(u.Hostname()))
	china := m != nil && strings.HasPrefix(m[1], "cn-")
	if m == nil || u.Scheme != "https" || u.Port() != "" && u.Port() != "443" || china != (m[2] != "") {
		return "", errors.New("provider aws is for https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME")
	}
	return m[1], nil
}
