/* The rules of LunarLander: see lander.h. The operations have the order of Gymnasium's
 * (gymnasium/envs/box2d/lunar_lander.py, version 1.x). docs/environments.md has the formulas. */
#include "environments/box2d/lander.h"

#include <math.h>

static const double pi = 3.14159265358979323846;
static const double scale = 30, rate = 50; /* pixels of a m, steps of a second */
static const double width = 600.0 / 30, height = 400.0 / 30;
static const double main_power = 13, side_power = 0.6;

/* What an action asks of the engines. */
struct thrust {
    double main, side; /* 0, or 0.5 to 1 of their power */
    double direction;  /* of the side engine: -1 the left one fires, 1 the right one */
};

static struct thrust
thrust_of(const lander_options *options, exo_action action)
{
    struct thrust t = {0};
    if (!options->continuous) {
        t.main = action.choice == 2 ? 1 : 0;
        t.side = action.choice == 1 || action.choice == 3 ? 1 : 0;
        t.direction = action.choice - 2;
        return t;
    }
    double ahead = (double)action.box[0], aside = (double)action.box[1];
    if (ahead > 0)
        t.main = (fmin(ahead, 1) + 1) * 0.5;
    if (fabs(aside) > 0.5) {
        t.side = fmin(fabs(aside), 1);
        t.direction = aside < 0 ? -1 : 1;
    }
    return t;
}

/* Applies the impulses of the engines. They act beside the lander's center by a noise. */
static void
fire(lander_world *world, const struct thrust *t, const double *noise)
{
    lander_reading now;
    lander_world_read(world, &now);
    const double tip[2] = {sin((double)now.angle), cos((double)now.angle)};
    const double side[2] = {-tip[1], tip[0]};
    if (t->main > 0) {
        double ahead = 4 / scale + 2 * noise[0];
        double x = tip[0] * ahead + side[0] * noise[1];
        double y = -tip[1] * ahead - side[1] * noise[1];
        lander_world_kick(world, (float)(-x * main_power * t->main),
                          (float)(-y * main_power * t->main), (float)((double)now.x + x),
                          (float)((double)now.y + y));
    }
    if (t->side > 0) {
        double aside = 3 * noise[1] + t->direction * 12 / scale;
        double x = tip[0] * noise[0] + side[0] * aside;
        double y = -tip[1] * noise[0] - side[1] * aside;
        /* 17 beside 14: Gymnasium's. The place of the thrust depends on the angle. */
        lander_world_kick(world, (float)(-x * side_power * t->side),
                          (float)(-y * side_power * t->side),
                          (float)((double)now.x + x - tip[0] * 17 / scale),
                          (float)((double)now.y + y + tip[1] * 14 / scale));
    }
}

/* tanh(sin 2kx + sin pi kx) with k = 0.01, which has no period. */
static double
gust(double *phase, double power)
{
    double strength = tanh(sin(0.02 * *phase) + sin(pi * 0.01 * *phase)) * power;
    *phase += 1;
    return strength;
}

/* Writes the observation and returns the potential. */
static double
look(lander_episode *e, const lander_reading *now)
{
    const double values[LANDER_OBSERVATION] = {
        ((double)now->x - width / 2) / (width / 2),
        ((double)now->y - (height / 4 + 18 / scale)) / (height / 2),
        (double)now->speed_x * (width / 2) / rate,
        (double)now->speed_y * (height / 2) / rate,
        (double)now->angle,
        20 * (double)now->turn / rate,
        now->legs[0] ? 1 : 0,
        now->legs[1] ? 1 : 0,
    };
    double *o = e->observation;
    for (int i = 0; i < LANDER_OBSERVATION; i++)
        o[i] = values[i];
    return -100 * sqrt(o[0] * o[0] + o[1] * o[1]) - 100 * sqrt(o[2] * o[2] + o[3] * o[3]) -
           100 * fabs(o[4]) + 10 * o[6] + 10 * o[7];
}

static exo_episode
advance(lander_episode *e, const lander_options *options, const struct thrust *t,
        const double *noise, double *reward)
{
    bool flies = e->observation[6] == 0 && e->observation[7] == 0;
    if (options->wind && flies) {
        double force = gust(&e->wind[0], options->wind_power);
        lander_world_push(e->world, (float)force, 0,
                          (float)gust(&e->wind[1], options->turbulence_power));
    }
    fire(e->world, t, noise);
    lander_world_step(e->world);
    lander_reading now;
    lander_world_read(e->world, &now);
    double shaping = look(e, &now);
    *reward = (e->begun ? shaping - e->shaping : 0) - t->main * 0.30 - t->side * 0.03;
    e->shaping = shaping;
    e->begun = true;
    bool lost = now.touched || fabs(e->observation[0]) >= 1;
    if (lost)
        *reward = -100;
    if (now.asleep)
        *reward = 100;
    return lost || now.asleep ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
}

/* Writes the heights of the landscape's points: means of three, with a flat place in the middle. */
static void
smooth(const double *given, float *out)
{
    double h[LANDER_HEIGHTS];
    for (int i = 0; i < LANDER_HEIGHTS; i++)
        h[i] = i >= LANDER_POINTS / 2 - 2 && i <= LANDER_POINTS / 2 + 2 ? height / 4 : given[i];
    for (int i = 0; i < LANDER_POINTS; i++)
        out[i] = (float)(0.33 * (h[(i + LANDER_HEIGHTS - 1) % LANDER_HEIGHTS] + h[i] + h[i + 1]));
}

void
lander_begin(lander_episode *e, const lander_options *options, const lander_start *start,
             const double *noise)
{
    float heights[LANDER_POINTS];
    double none;
    const struct thrust no_thrust = {0};
    lander_end(e);
    smooth(start->heights, heights);
    *e = (lander_episode){.world = lander_world_new(heights, (float)options->gravity),
                          .wind = {start->wind[0], start->wind[1]}};
    lander_world_push(e->world, (float)start->force[0], (float)start->force[1], 0);
    advance(e, options, &no_thrust, noise, &none);
}

exo_episode
lander_step(lander_episode *e, const lander_options *options, exo_action action,
            const double *noise, double *reward)
{
    struct thrust t = thrust_of(options, action);
    return advance(e, options, &t, noise, reward);
}

void
lander_end(lander_episode *e)
{
    lander_world_free(e->world);
    e->world = NULL;
}
