package job

import (
	"os"

	"golang.org/x/sys/unix"
)

// look returns what the processes of the job that are alive use, and remembers
// them. The table is not read at one moment: nothing is left when two looks in a
// row say so.
func (p *process) look() usage {
	u := p.glance()
	if u.processes == 0 {
		u = p.glance()
	}
	return u
}

func (p *process) glance() usage {
	var u usage
	for _, m := range p.members() {
		u.cpu += m.cpu
		if m.dead {
			continue
		}
		u.processes++
		if p.job.Limits.Memory > 0 {
			u.memory += memory(m.pid)
		}
	}
	return u
}

// close says that nothing of the job is to go on.
func (p *process) close() { p.job.Reaper.over(p) }

// terminate asks all processes to end, also those that are stopped.
func (p *process) terminate() { p.send(unix.SIGTERM, unix.SIGCONT) }

// kill kills them.
func (p *process) kill() { p.send(unix.SIGKILL) }

func (p *process) send(signals ...unix.Signal) {
	for _, s := range signals {
		_ = unix.Kill(-p.leader.pid, s) // all of the group at one moment
	}
	for _, m := range p.members() {
		if !m.dead && m.group != p.leader.pid {
			m.send(signals...)
		}
	}
}

// members returns the processes of the job, with those that are not waited for yet.
func (p *process) members() []proc {
	all := table()
	self := all[os.Getpid()]
	in, known := make(map[int]bool), make(map[int]uint64)
	var members []proc
	add := func(m proc) {
		in[m.pid] = true
		known[m.pid] = m.start
		members = append(members, m)
	}
	for _, c := range all {
		if p.seed(c, self) {
			add(c)
		}
	}
	groups, sessions := map[int]bool{}, map[int]bool{}
	for grown := len(members) > 0; grown; {
		grown = false
		for _, m := range members {
			groups[m.group], sessions[m.session] = true, true
		}
		delete(groups, self.group) // never those of this process
		delete(sessions, self.session)
		for _, c := range all {
			if !in[c.pid] && c.pid != self.pid && (in[c.parent] || groups[c.group] || sessions[c.session]) {
				add(c)
				grown = true
			}
		}
	}
	p.known = known
	return members
}

// seed reports whether c is a process of the job, whatever the others are.
func (p *process) seed(c, self proc) bool {
	switch {
	case c.pid == p.leader.pid || c.session == p.leader.pid || c.group == p.leader.pid:
		return true
	case c.pid == self.pid || c.start < p.leader.start:
		return false
	case p.known[c.pid] == c.start && c.start != 0:
		return true
	case c.dead:
		return false
	}
	says := mark(c.pid)
	return says == p.mark || p.job.Reaper.strays(c, self, says, p)
}
