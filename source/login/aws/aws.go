// Package aws logs in to CodeCommit (reference A9), to buckets of S3 (reference
// A10), and to private and public registries of ECR (reference A11).
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
//     oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME, oci://public.ecr.aws/NAME or
//     s3://s3.REGION.amazonaws.com/BUCKET, or what AWS calls those with FIPS, over
//     IPv6, in a private network and in its other partitions (endpoint.go). No other
//     host is shown anything.
//   - A role that is assumed with an identity token is one of the partition of
//     the URL: the token is shown to no other.
//   - The user name and password for CodeCommit are made anew for each use: the
//     password is a signature over host and path (its format is in sign.go) that
//     is good for 15 minutes. What is asked later in the same conversation is refused.
//   - The password for a registry is a token that ECR issues for all registries
//     of a region that the identity may use. Where it is issued follows from the
//     region alone.
//   - For a bucket the keys themselves are the credential, with their session
//     token. Where keys are issued by a token service it is the one of the
//     region, or that in the query of the URL, sts=https://HOST, which must be one
//     of AWS in the same partition.
//   - Temporary keys and tokens are used for 80 % of their life, an hour at most.
package aws

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A Provider logs in with the identity of the program, and keeps temporary keys
// and tokens.
type Provider struct {
	now    func() time.Time
	env    exchange.Environment
	keys   exchange.Credentials
	tokens exchange.Credentials
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv]. The SDK
// reads the environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	if now == nil {
		now = time.Now
	}
	return &Provider{now: now, env: exchange.NewEnvironment(lookup),
		keys: exchange.Credentials{Now: now}, tokens: exchange.Credentials{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, client, err := exchange.Begin(r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	if at.service == registry || at.service == gallery {
		return p.registryCredential(ctx, client, at)
	}
	keys, err := p.identify(ctx, client, at)
	if err != nil || at.service == buckets {
		return keys, err
	}
	now := p.now()
	c := sign(keys, r.URL, at.region, now)
	if c.Expires = now.Add(validity); !keys.Expires.IsZero() && keys.Expires.Before(c.Expires) {
		c.Expires = keys.Expires
	}
	c.Refused = keys.Refused
	return c, nil
}

// identify returns the keys of the program as a credential for buckets.
func (p *Provider) identify(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.keys.Get(ctx, at.region+" "+at.issuer, func(ctx context.Context) (source.Credential, error) {
		if err := p.belongs(at.region); err != nil {
			return source.Credential{}, err
		}
		keys, err := p.retrieve(ctx, exchange.Until(ctx, client), at)
		if err != nil {
			return source.Credential{}, p.explain(ctx, "get the keys of this program", err)
		}
		c := source.Credential{Username: keys.AccessKeyID, Password: keys.SecretAccessKey, Token: keys.SessionToken}
		if keys.CanExpire {
			c.Expires = keys.Expires
		}
		return c, nil
	})
}
