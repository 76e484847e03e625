/*
 * Stands in for Pyxis (github.com/NVIDIA/pyxis) on the test cluster: a SPANK plugin with those of its options that
 * clusterkit uses. Apptainer starts the container where Pyxis would have enroot start it.
 *
 * As in Pyxis, the task keeps the process that Slurm has made for it, an exported variable of the job is in the
 * container, the image's own value of it wins unless --container-env names it, and an image or mount that cannot
 * be used makes task_init fail, with the words of Pyxis and enroot.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis_stand_in, 1)

#define MOST 4096

static char *image, *mounts = "", *workdir, *names = "";

enum { IMAGE, MOUNTS, WORKDIR, ENV, FLAG };

static int take(int which, const char *value, int remote)
{
	char **kept[] = { &image, &mounts, &workdir, &names };

	if (which != FLAG)
		*kept[which] = strdup(value);
	return 0;
}

static struct spank_option options[] = {
	{ "container-image", "IMAGE|PATH", "[pyxis] the image", 1, IMAGE, take },
	{ "container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] bind mounts", 1, MOUNTS, take },
	{ "container-workdir", "PATH", "[pyxis] working directory", 1, WORKDIR, take },
	{ "container-env", "NAME[,NAME...]", "[pyxis] variables that win over the image's", 1, ENV, take },
	{ "container-readonly", NULL, "[pyxis] read-only", 0, FLAG, take },
	{ "no-container-mount-home", NULL, "[pyxis] without the home directory", 0, FLAG, take },
	{ "no-container-remap-root", NULL, "[pyxis] without remapping to root", 0, FLAG, take },
	{ "no-container-entrypoint", NULL, "[pyxis] without the image's entrypoint", 0, FLAG, take },
	SPANK_OPTIONS_TABLE_END
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	for (int i = 0; options[i].name; i++)
		if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* enroot takes squashfs alone. The registry `testbed` is a folder of such files. */
static int usable(void)
{
	static char imported[MOST];
	char magic[4] = "", *fault = "No such file or directory", *name = strchr(image, '#');
	FILE *file;

	if (strncmp(image, "docker://", 9) == 0) {
		snprintf(imported, sizeof(imported), "/share/pyxis/%s.sqsh", name ? name + 1 : image);
		if (access(imported, R_OK) != 0) {
			slurm_error("pyxis: failed to import docker image: %s", image);
			slurm_error("pyxis: printing enroot log file:");
			slurm_error("pyxis:     [ERROR] URL https://testbed returned error code: 404 Not Found");
			return 0;
		}
		image = imported;
	}
	file = fopen(image, "rb");
	if (file) {
		fault = "Invalid image format";
		if (fread(magic, 4, 1, file) == 1 && memcmp(magic, "hsqs", 4) == 0)
			fault = NULL;
		fclose(file);
	}
	if (!fault)
		return 1;
	slurm_error("pyxis: failed to create container filesystem for image: %s", image);
	slurm_error("pyxis: printing enroot log file:");
	slurm_error("pyxis:     [ERROR] %s: %s", fault, image);
	return 0;
}

static int there(const char *mount)
{
	char source[MOST];

	snprintf(source, sizeof(source), "%.*s", (int)strcspn(mount, ":"), mount);
	if (access(source, F_OK) == 0)
		return 1;
	slurm_error("pyxis: --container-mounts: source path does not exist: %s", source);
	slurm_error("pyxis: couldn't create enroot start configuration script");
	return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	char *argv[MOST] = { "apptainer", "--quiet", "exec", "--contain" };
	char *env[MOST] = { "PATH=/usr/bin:/bin" };
	char **task_argv, **task_env, *text;
	int argc = 4, envc = 1, task_argc;
	sigset_t none;

	if (spank_remote(sp) != 1 || !image)
		return 0;
	if (!usable() || spank_get_item(sp, S_JOB_ARGV, &task_argc, &task_argv) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_ENV, &task_env) != ESPANK_SUCCESS)
		return -1;
	for (; *task_env && envc < MOST - 1; task_env++)
		if (strncmp(*task_env, "PATH=", 5) != 0)
			env[envc++] = *task_env;
	for (char *name = strtok(names, ","); name && envc < MOST - 1; name = strtok(NULL, ","))
		if (spank_getenv(sp, name, text = malloc(MOST), MOST) != ESPANK_SUCCESS)
			continue;
		else if (strcmp(name, "HOME") == 0) { /* Apptainer takes no other way */
			argv[argc++] = "--home";
			argv[argc++] = text;
		} else
			asprintf(&env[envc++], "APPTAINERENV_%s=%s", name, text);
	for (char *mount = strtok(mounts, ","); mount && argc < MOST / 2; mount = strtok(NULL, ",")) {
		for (char *plus = mount; (plus = strchr(plus, '+'));)
			*plus = ',';
		if (!there(mount))
			return -1;
		argv[argc++] = "--bind";
		argv[argc++] = mount;
	}
	if (workdir) {
		argv[argc++] = "--pwd";
		argv[argc++] = workdir;
	}
	argv[argc++] = image;
	for (int i = 0; i < task_argc && argc < MOST - 1; i++)
		argv[argc++] = task_argv[i];
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve("/usr/bin/apptainer", argv, env);
	slurm_error("pyxis: apptainer does not start: %m");
	return -1;
}
