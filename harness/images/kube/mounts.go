package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// prepareMounts gives this container what `--privileged` would have given, as far as a node needs it. It changes only
// the container's own mount, network and cgroup namespaces: the machine's settings stay as they are.
func prepareMounts() error {
	for _, step := range []struct {
		purpose string
		do      func() error
	}{
		{"making the network's sysctls writable", openNetworkSettings},
		{"showing the sysctls that kubelet insists on", pretendSysctls},
		{"making control groups writable", openControlGroups},
		{"sharing kubelet's mounts", shareKubeletFolder},
		{"providing /dev/kmsg", provideKernelLog},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s (does the container have SYS_ADMIN, and no AppArmor profile?): %w", step.purpose, err)
		}
	}
	return nil
}

// openNetworkSettings makes /proc/sys/net writable, which is this network namespace's own, and leaves the rest of
// /proc/sys read-only, as Docker mounted it: much of it belongs to the whole machine.
func openNetworkSettings() error {
	const settings = "/proc/sys/net"
	if err := unix.Mount(settings, settings, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := remountWritable(settings); err != nil {
		return err
	}
	return os.WriteFile(settings+"/ipv4/ip_forward", []byte("1"), 0o644)
}

// pretendSysctls covers machine-wide kernel settings by plain files, in this mount namespace only. Outside of a user
// namespace kubelet sets them itself and ends if it may not.
func pretendSysctls() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run/kube/sysctl", name)
		if err := writeFile(file, []byte(value+"\n")); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// openControlGroups lets kubelet and runc make groups below the container's own.
func openControlGroups() error {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || (fields[2] != "cgroup" && fields[2] != "cgroup2") {
			continue
		}
		if err := remountWritable(fields[1]); err != nil {
			return fmt.Errorf("%s: %w", fields[1], err)
		}
	}
	return delegateControllers("/sys/fs/cgroup")
}

// delegateControllers is for version 2 alone: a group that hands controllers to its children may hold no process itself,
// so ours move to a leaf first.
func delegateControllers(root string) error {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return err
	}
	leaf := filepath.Join(root, "init")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	processes, err := os.ReadFile(filepath.Join(root, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(string(processes)) {
		err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(id), 0o644)
		if err != nil && !errors.Is(err, unix.ESRCH) { // it may have ended meanwhile
			return fmt.Errorf("moving process %s: %w", id, err)
		}
	}
	for _, controller := range strings.Fields(string(available)) {
		err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		if err != nil {
			return fmt.Errorf("handing down the %s controller: %w", controller, err)
		}
	}
	return nil
}

// shareKubeletFolder lets mounts that kubelet makes appear in containers that ask for propagation.
func shareKubeletFolder() error {
	if err := os.MkdirAll(kubeletFolder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kubeletFolder, kubeletFolder, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", kubeletFolder, "", unix.MS_SHARED|unix.MS_REC, "")
}

// provideKernelLog satisfies kubelet's watcher for out-of-memory kills, which reads this device and ends without it.
func provideKernelLog() error {
	err := os.Symlink("/dev/null", "/dev/kmsg")
	if errors.Is(err, os.ErrExist) {
		return nil // the real one was handed in by --device
	}
	return err
}

func remountWritable(path string) error {
	return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
